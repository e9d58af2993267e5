//! Requests about Leases, as the API server counts them (`apiserver_request_total`).

use std::collections::BTreeMap;

use leasewarden_electors::now;

use crate::Error;
use crate::stage::Stage;

/// How many, by verb and status code, up to a moment.
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    pub(crate) at: u64,
    counts: BTreeMap<(String, String), f64>,
}

impl Counted {
    pub(crate) fn now(stage: &Stage) -> Result<Self, Error> {
        // The server takes the numbers while it answers; that takes some milliseconds.
        let before = now();
        let text = stage.kubectl(&["get", "--raw", "/metrics"])?;
        let at = u64::midpoint(before, now());
        let counts = parse(&text)?;
        Ok(Self { at, counts })
    }

    /// Of those that such verbs and codes have.
    pub(crate) fn sum(&self, such: impl Fn(&str, &str) -> bool) -> f64 {
        let such = self.counts.iter().filter(|((verb, code), _)| such(verb, code));
        such.map(|(_, count)| count).sum()
    }
}

fn parse(text: &str) -> Result<BTreeMap<(String, String), f64>, Error> {
    let mut counts = BTreeMap::new();
    let mut seen = false;
    for line in text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
    {
        seen = true;
        let unexpected = || Error::Metrics(line.to_owned());
        let (labels, count) = line.rsplit_once("} ").ok_or_else(unexpected)?;
        let label = |name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value.to_owned())
        };
        if label(",resource").as_deref() != Some("leases") {
            continue;
        }
        let verb = label(",verb").ok_or_else(unexpected)?;
        let code = label("code").ok_or_else(unexpected)?;
        *counts.entry((verb, code)).or_insert(0.0) += count.parse::<f64>().map_err(|_| unexpected())?;
    }
    if seen {
        Ok(counts)
    } else {
        Err(Error::Metrics("no apiserver_request_total".to_owned()))
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, clippy::unwrap_used)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# TYPE apiserver_request_total counter
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 12
apiserver_request_total{code="409",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="resource",subresource="",verb="PUT",version="v1"} 3
apiserver_request_total{code="200",component="apiserver",dry_run="",group="coordination.k8s.io",resource="leases",scope="namespace",subresource="",verb="LIST",version="v1"} 1.5e+01
apiserver_request_total{code="200",component="apiserver",dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="GET",version="v1"} 99
"#;

    #[test]
    fn only_requests_about_leases_count() {
        let counted = Counted {
            at: 0,
            counts: parse(TEXT).unwrap(),
        };
        assert_eq!(counted.sum(|_, _| true), 30.0);
        assert_eq!(counted.sum(|verb, code| verb == "PUT" && code == "200"), 12.0);
        assert_eq!(counted.sum(|verb, _| verb != "PUT"), 15.0);
    }

    #[test]
    fn a_server_that_does_not_count_is_no_server_without_requests() {
        assert!(parse("apiserver_requests{} 1\n").is_err());
    }
}
