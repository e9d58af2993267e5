//! From commented values to a strict JSON schema (draft 7, which Helm checks by).
//!
//! Types are those of the defaults, descriptions are the comments that helm-docs reads (`# -- …`), and what neither tells
//! stands in a line `# @schema {…}`, whose keys are added to the schema of the value below it. An object allows its own keys
//! and no others, unless such a line says `additionalProperties`. A value that leaves its type open (null, an empty
//! list or object) without such a line is an error: it would allow anything.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Why there is no schema.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The values are no YAML.
    #[error("the values are no YAML: {0}")]
    Values(String),
    /// A line `# @schema` is no object in YAML's flow style.
    #[error("{path}: what follows @schema is no object: {reason}")]
    Annotation {
        /// The value below it.
        path: String,
        /// What the parser said.
        reason: String,
    },
    /// A value without a comment.
    #[error("{0}: has no description; add a line `# -- …` above it")]
    Description(String),
    /// A value that could be anything.
    #[error("{0}: {1}; say in a line `# @schema {{…}}` above it what may stand there")]
    Open(String, &'static str),
}

/// What stands above a value.
#[derive(Debug, Default)]
struct Comment {
    annotation: Option<String>,
    description: String,
}

/// The JSON schema of a `values.yaml`, as text.
pub fn schema(values: &str) -> Result<String, Error> {
    let comments = comments(values);
    let values: Value = serde_saphyr::from_str(values).map_err(|error| Error::Values(error.to_string()))?;
    let mut schema = object(&comments, "", values.as_object().unwrap_or(&Map::new()))?;
    schema.insert("$schema".into(), "http://json-schema.org/draft-07/schema#".into());
    // Whether a map keeps its order is another crate's choice in the same build; the file must not depend on it.
    let text = serde_json::to_string_pretty(&sorted(Value::Object(schema)));
    Ok(text.map_err(|error| Error::Values(error.to_string()))? + "\n")
}

/// The comments by the path of the value that they stand above: `metrics.port`.
fn comments(values: &str) -> BTreeMap<String, Comment> {
    let mut found = BTreeMap::new();
    let mut comment = Comment::default();
    let mut path: Vec<(usize, String)> = Vec::new();
    for line in values.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(text) = text.strip_prefix('#') {
            let text = text.strip_prefix(' ').unwrap_or(text);
            if let Some(annotation) = text.strip_prefix("@schema ") {
                comment.annotation = Some(annotation.to_owned());
            } else if let Some(begin) = text.strip_prefix("-- ") {
                // helm-docs takes the type from there, where the default does not tell it.
                let begin = begin
                    .strip_prefix('(')
                    .map_or(begin, |t| t.split_once(") ").map_or(begin, |t| t.1));
                begin.trim_end().clone_into(&mut comment.description);
            } else if !comment.description.is_empty() {
                comment.description.push(' ');
                comment.description.push_str(text.trim());
            }
        } else if let Some((key, _)) = text.split_once(':').filter(|(key, _)| is_key(key)) {
            path.retain(|(at, _)| *at < indent);
            path.push((indent, key.to_owned()));
            let names: Vec<_> = path.iter().map(|(_, name)| name.as_str()).collect();
            found.insert(names.join("."), std::mem::take(&mut comment));
        } else {
            comment = Comment::default();
        }
    }
    found
}

fn is_key(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn object(
    comments: &BTreeMap<String, Comment>,
    path: &str,
    values: &Map<String, Value>,
) -> Result<Map<String, Value>, Error> {
    let mut properties = Map::new();
    for (key, value) in values {
        let path = if path.is_empty() {
            key.clone()
        } else {
            format!("{path}.{key}")
        };
        properties.insert(key.clone(), Value::Object(property(comments, &path, value)?));
    }
    let schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    Ok(schema.as_object().cloned().unwrap_or_default())
}

fn property(
    comments: &BTreeMap<String, Comment>,
    path: &str,
    value: &Value,
) -> Result<Map<String, Value>, Error> {
    let none = Comment::default();
    let comment = comments.get(path).unwrap_or(&none);
    let annotation: Map<String, Value> = match &comment.annotation {
        Some(text) => serde_saphyr::from_str(text).map_err(|error| Error::Annotation {
            path: path.to_owned(),
            reason: error.to_string(),
        })?,
        None => Map::new(),
    };
    let open = |why| Err(Error::Open(path.to_owned(), why));
    let free = annotation.contains_key("additionalProperties");
    let mut schema = match value {
        // A folder of values, each of which has its own comment.
        Value::Object(values) if !values.is_empty() && !free => object(comments, path, values)?,
        Value::Object(_) if !free => return open("an empty object, without additionalProperties"),
        Value::Array(_) if !annotation.contains_key("items") => return open("a list, without items"),
        Value::Null if !annotation.contains_key("type") => return open("null, without a type"),
        value => {
            if comment.description.is_empty() {
                return Err(Error::Description(path.to_owned()));
            }
            let mut schema = Map::new();
            schema.insert("type".into(), type_of(value).into());
            if !value.is_null() {
                schema.insert("default".into(), value.clone());
            }
            schema
        }
    };
    if !comment.description.is_empty() {
        schema.insert("description".into(), comment.description.clone().into());
    }
    schema.extend(annotation);
    Ok(schema)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<_, _> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            Value::Object(sorted.into_iter().collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(sorted).collect()),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(values: &str) -> Value {
        serde_json::from_str(&schema(values).unwrap()).unwrap()
    }

    #[test]
    fn a_value_has_the_type_of_its_default_and_the_text_of_its_comment() {
        let made = made("# Not this.\n\n# -- How many\n# there are.\ncount: 2\n");
        let count = json!({"type": "integer", "default": 2, "description": "How many there are."});
        assert_eq!(made["properties"]["count"], count);
    }

    #[test]
    fn an_object_allows_its_own_keys_alone_at_every_depth() {
        let made = made("outer:\n  inner:\n    # -- A word.\n    word: \"1\"\n");
        let outer = &made["properties"]["outer"];
        assert_eq!(made["additionalProperties"], false);
        assert_eq!(outer["additionalProperties"], false);
        assert_eq!(outer["properties"]["inner"]["additionalProperties"], false);
        assert_eq!(
            outer["properties"]["inner"]["properties"]["word"]["type"],
            "string"
        );
    }

    #[test]
    fn what_an_annotation_says_is_added_and_wins() {
        let made = made(
            "# @schema {type: [integer, \"null\"], minimum: 1}\n# -- Perhaps.\nmaybe:\n# -- Sure.\nsure: x\n",
        );
        assert_eq!(
            made["properties"]["maybe"],
            json!({"type": ["integer", "null"], "minimum": 1, "description": "Perhaps."})
        );
        assert_eq!(made["properties"]["sure"]["type"], "string");
    }

    #[test]
    fn an_object_that_is_free_keeps_its_default_whole() {
        let made = made("# @schema {additionalProperties: true}\n# -- Free.\nfree:\n  a:\n    b: 1\n");
        let free = json!({
            "type": "object", "additionalProperties": true, "default": {"a": {"b": 1}}, "description": "Free."
        });
        assert_eq!(made["properties"]["free"], free);
    }

    #[test]
    fn what_would_allow_anything_is_refused_by_its_path() {
        for (values, says) in [
            ("a:\n  # -- Text.\n  b: {}\n", "a.b: an empty object"),
            ("a:\n  # -- Text.\n  b: []\n", "a.b: a list"),
            ("a:\n  # -- Text.\n  b:\n", "a.b: null"),
            ("a:\n  b: 1\n", "a.b: has no description"),
            (
                "# @schema nonsense\n# -- Text.\na: 1\n",
                "a: what follows @schema",
            ),
        ] {
            let error = schema(values).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn the_text_does_not_depend_on_the_order_of_the_values() {
        let one = schema("# -- A.\na: 1\n# -- B.\nb: 2\n").unwrap();
        assert_eq!(one, schema("# -- B.\nb: 2\n# -- A.\na: 1\n").unwrap());
    }
}
