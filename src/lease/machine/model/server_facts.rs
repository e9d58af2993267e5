//! What of the real server matters to the lock and is not in the model, because nothing of ours sends it.

use std::time::Duration;

use http::{Method, Request as HttpRequest};
use serde_json::{Value, json};

use super::server_compared::{NAME, free, real};

/// The time of the last manager of the spec.
fn spec_managed_at(lease: &Value) -> Option<String> {
    let entries = lease["metadata"]["managedFields"].as_array()?;
    let owns = |entry: &&Value| entry["fieldsV1"].get("f:spec").is_some();
    entries
        .iter()
        .filter(owns)
        .filter_map(|entry| entry["time"].as_str())
        .max()
        .map(str::to_owned)
}

#[tokio::test]
async fn what_the_lock_counts_on_beside_the_model_holds_on_the_real_server() {
    real(async |real| {
        let one = format!("/{NAME}");
        let created = real
            .json(
                Method::POST,
                "",
                &serde_json::to_value(free(&real.namespace)).unwrap(),
            )
            .await
            .unwrap();
        let spec = |spec: Value| {
            let mut lease = created.clone();
            lease["spec"] = spec;
            lease
        };
        // What no Lease may say, and what it may.
        for refused in [
            json!({"leaseDurationSeconds": 0}),
            json!({"leaseDurationSeconds": -1}),
            json!({"leaseTransitions": -1}),
        ] {
            let error = real
                .json(Method::PUT, &one, &spec(refused.clone()))
                .await
                .unwrap_err();
            assert!(
                matches!(&error, kube::Error::Api(status) if status.code == 422),
                "{refused}: {error}"
            );
        }
        let half = real
            .json(
                Method::PUT,
                &one,
                &spec(json!({"renewTime": "2026-01-01T00:00:00.5Z"})),
            )
            .await;
        assert!(
            matches!(&half, Err(kube::Error::Api(status)) if status.code == 400),
            "{half:?}"
        );
        let odd = json!({"holderIdentity": "x".repeat(100_000), "leaseDurationSeconds": i32::MAX});
        let stored = real.json(Method::PUT, &one, &spec(odd)).await.unwrap();
        assert_eq!(stored["spec"]["leaseDurationSeconds"], i32::MAX);

        // The time of the spec's managers moves with a renewal, and not with another's label.
        let renewed_at = spec_managed_at(&stored).expect("the spec has a manager");
        let mut later = renewed_at.clone();
        let label = json!({"metadata": {"labels": {"team": "blue"}}});
        for nth in 0.. {
            if later != renewed_at {
                break;
            }
            // These times are whole seconds.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let kind = "application/merge-patch+json";
            let another = format!("{one}?fieldManager=another");
            let labelled = real.send(Method::PATCH, &another, kind, &label).await.unwrap();
            assert_eq!(spec_managed_at(&labelled).as_ref(), Some(&renewed_at));
            let renewal = json!({"spec": {"holderIdentity": format!("renewal {nth}")}});
            let renewed = real.send(Method::PATCH, &one, kind, &renewal).await.unwrap();
            later = spec_managed_at(&renewed).unwrap();
            assert!(later >= renewed_at);
        }

        // Every reply says when it was given, in whole seconds.
        let get = HttpRequest::get(format!("{}{one}", real.leases))
            .body(kube::client::Body::empty())
            .unwrap();
        let reply = real.client.send(get).await.unwrap();
        let date = reply.headers()[http::header::DATE].to_str().unwrap();
        assert!(httpdate::parse_http_date(date).is_ok(), "{date}");
    })
    .await;
}
