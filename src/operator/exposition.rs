//! The text that Prometheus reads, in the form that it asks for.

use std::{collections::HashSet, fmt};

use prometheus_client::{encoding::text, registry::Registry};

/// In the form that the asker understands: `OpenMetrics` when it says so, otherwise Prometheus' own, which names a counter as its
/// series are named. Answers the content type and the text.
pub(crate) fn exposition(
    registry: &Registry,
    open_metrics: bool,
) -> Result<(&'static str, String), fmt::Error> {
    let mut out = String::new();
    text::encode(&mut out, registry)?;
    if open_metrics {
        return Ok(("application/openmetrics-text; version=1.0.0; charset=utf-8", out));
    }
    Ok(("text/plain; version=0.0.4; charset=utf-8", plain(&out)))
}

fn plain(open: &str) -> String {
    let counters: HashSet<&str> = open
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(open.len());
    for line in open
        .lines()
        .filter(|l| *l != "# EOF" && !l.starts_with("# UNIT "))
    {
        let mut words = line.splitn(4, ' ');
        let (hash, what, name, rest) = (words.next(), words.next(), words.next(), words.next());
        if let (Some("#"), Some(what), Some(name), Some(rest)) = (hash, what, name, rest)
            && counters.contains(name)
        {
            out.extend(["# ", what, " ", name, "_total ", rest, "\n"]);
        } else {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_named_in_the_plain_form_as_its_series_are() {
        let open = "# HELP a_b Of x.\n# TYPE a_b counter\na_b_total{r=\"# TYPE a_b counter\"} 1\n# HELP g G.\n# TYPE g gauge\ng 2\n# EOF\n";
        assert_eq!(
            plain(open),
            "# HELP a_b_total Of x.\n# TYPE a_b_total counter\na_b_total{r=\"# TYPE a_b counter\"} 1\n# HELP g G.\n# TYPE g gauge\ng 2\n"
        );
    }
}
