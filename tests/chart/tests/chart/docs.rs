//! The values that the pages show are values that the chart takes.

use serde_json::{Value, json};

use crate::support::{read, render};

const PAGES: [&str; 4] = [
    "docs/install.md",
    "docs/namespaced.md",
    "docs/alerts.md",
    "docs/upgrade.md",
];

/// What stands between a line that ends in ```` ```yaml ```` and the next ```` ``` ````.
fn blocks(page: &str) -> Vec<String> {
    page.split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

#[test]
fn values_that_the_pages_show_render() {
    let mut shown = 0;
    for page in PAGES {
        for block in blocks(&read(page)) {
            let values: Value =
                serde_saphyr::from_str(&block).unwrap_or_else(|error| panic!("{page}: {error}"));
            render(&values);
            shown += 1;
        }
    }
    assert_eq!(shown, 4);
}

#[test]
fn the_values_of_the_argo_cd_application_render() {
    let page = read("docs/gitops.md");
    let application: Value = serde_saphyr::from_str(&blocks(&page)[0]).unwrap();
    let values = &application["spec"]["source"]["helm"]["valuesObject"];
    assert_eq!(values, &json!({"worker": {"leasesByHook": false}}));
    render(values);
    for block in blocks(&page) {
        serde_saphyr::from_str::<Value>(&block).unwrap();
    }
}

#[test]
fn every_value_that_a_page_names_exists() {
    let schema: Value = serde_json::from_str(&read("charts/leasewarden/values.schema.json")).unwrap();
    let exists = |path: &str| {
        let mut at = &schema;
        path.split('.').all(|key| {
            if at["additionalProperties"] == true {
                return true;
            }
            at = &at["properties"][key];
            at.is_object()
        })
    };
    let roots: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
    let mut named = 0;
    let folder = std::fs::read_dir(crate::support::root().join("docs/runbooks")).unwrap();
    let runbooks =
        folder.map(|entry| format!("docs/runbooks/{}", entry.unwrap().file_name().to_string_lossy()));
    let more = [
        "docs/troubleshooting.md",
        "docs/gitops.md",
        "docs/security-model.md",
        "docs/uninstall.md",
    ];
    for page in PAGES.into_iter().chain(more).map(str::to_owned).chain(runbooks) {
        let text = read(&page);
        for code in text.split('`').skip(1).step_by(2) {
            let path = code.split(['=', ':']).next().unwrap();
            let of_the_chart = path
                .split_once('.')
                .is_some_and(|(root, _)| roots.iter().any(|key| *key == root));
            if of_the_chart && path.chars().all(|c| c.is_ascii_alphanumeric() || c == '.') {
                assert!(exists(path), "{page} names {path}");
                named += 1;
            }
        }
    }
    assert!(named > 40, "{named}");
}
