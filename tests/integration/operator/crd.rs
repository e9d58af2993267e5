//! What a person types: the API server's own validation, kubectl's columns and its explanations.

use super::*;

fn kubectl(stage: &Stage, args: &[&str]) -> String {
    let output = stage
        .control_plane
        .kubectl()
        .args(["-n", stage.namespace.name()])
        .args(args)
        .output()
        .unwrap();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[tokio::test]
async fn kubectl_shows_the_leader() {
    let stage = Stage::new("columns").await;
    let ttl = Duration::from_secs(600);
    stage.instance("host-1:shop:8080").acquire("orders", ttl).await;
    stage.holder_is("orders", Some("host-1:shop:8080")).await;
    let table = kubectl(&stage, &["get", "csl"]);
    let header: Vec<_> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(
        header,
        ["NAME", "HOLDER", "HELD", "SINCE", "EXPIRES", "AGE"],
        "{table}"
    );
    let row: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], ["orders", "host-1:shop:8080", "True"], "{table}");
    assert!(
        row[3].ends_with('s') && row[4].ends_with('Z') && !table.contains("<invalid>"),
        "{table}"
    );

    let wide = kubectl(&stage, &["get", "csl", "-o", "wide"]);
    let header: Vec<_> = wide.lines().next().unwrap().split_whitespace().skip(6).collect();
    assert_eq!(
        header,
        ["LEASE", "TTL", "TRANSITIONS", "TOKEN", "REASON"],
        "{wide}"
    );
    let explained = kubectl(&stage, &["explain", "csl.status.expirationTime"]);
    assert!(
        explained.contains("lasts at least until this time"),
        "{explained}"
    );
}

#[tokio::test]
async fn the_api_server_refuses_what_cannot_be() {
    let stage = Stage::empty("validation").await;
    let long = "x".repeat(1025);
    let crabs = "🦀".repeat(300);
    for (stream, says) in [
        ("", "at least 1 chars"),
        ("a\u{1}b", "should match"),
        (&long, "Too long"),
        (&crabs, "at most 1024 bytes"),
    ] {
        let object = ChangeStreamLeader::new("bad", spec(stream));
        let error = stage
            .objects()
            .create(&PostParams::default(), &object)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
    for stream in ["Orders", "a/b", "🦀", " ", &"x".repeat(300)] {
        let object = ChangeStreamLeader::new("good", spec(stream));
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        stage.objects().create(&dry, &object).await.unwrap();
    }
    let mut bad_lease = spec("orders");
    bad_lease.lease_name = Some("Orders_1".into());
    let object = ChangeStreamLeader::new("bad", bad_lease);
    assert!(
        stage
            .objects()
            .create(&PostParams::default(), &object)
            .await
            .is_err()
    );

    stage.write_object("orders", spec("orders")).await;
    for change in [json!({"streamName": "other"}), json!({"leaseName": "other"})] {
        let patch = Patch::Merge(json!({"spec": change}));
        let error = stage
            .objects()
            .patch("orders", &PatchParams::default(), &patch)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("cannot be changed"), "{error}");
    }
    let patch = Patch::Merge(json!({"spec": {"statusPolicy": "TransitionsOnly"}}));
    stage
        .objects()
        .patch("orders", &PatchParams::default(), &patch)
        .await
        .unwrap();
}
