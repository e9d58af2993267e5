//! The operator as a program: how it ends, and what it says when it cannot begin.

use std::os::unix::process::ExitStatusExt;

use super::*;

#[tokio::test]
async fn it_leaves_cleanly_on_sigterm_and_sigint() {
    for signal in ["-TERM", "-INT"] {
        let mut stage = Stage::new("signal").await;
        stage.instance("a").acquire("orders", LIMIT).await;
        stage.holder_is("orders", Some("a")).await;
        let status = stage.operator().signal(signal).await;
        assert_eq!(
            (status.code(), status.signal()),
            (Some(0), None),
            "{signal}: {}",
            stage.operator().log()
        );
        stage.operator().says("the operator stopped").await;
        let events = stage.operator().events();
        let last = events.last().unwrap();
        assert_eq!(last["message"], "the operator stopped", "{signal}: {events:?}");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_does_not_parse_is_said_without_showing_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    std::fs::write(&file, "apiVersion: v1\nusers: [{user: {token: hush-hush}\n").unwrap();
    for args in [
        &["operator"][..],
        &["operator", "--kubeconfig", file.to_str().unwrap()],
    ] {
        let mut program = Program::start(&file, args);
        assert_eq!(program.exit().await.code(), Some(1));
        until("the error", || async {
            (!program.log().is_empty()).then_some(())
        })
        .await;
        let log = program.log();
        assert!(
            log.contains("failed to parse kubeconfig") && !log.contains("hush-hush"),
            "{log}"
        );
        assert_eq!(log.lines().count(), 1, "{log}");
    }
}

#[tokio::test]
async fn without_an_api_server_it_says_so_and_tries_on() {
    let (_folder, file) = to_nowhere();
    let mut program = Program::operator(&file, &[]);
    program.says("the API server could not be reached").await;
    assert!(program.is_running());
    assert_eq!(program.signal("-TERM").await.code(), Some(0));
}

#[tokio::test]
async fn a_context_that_is_not_there_is_looked_for_in_the_file_that_is_named() {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    let file = home.path().join(".kube/config");
    std::fs::write(&file, r#"{"apiVersion": "v1", "kind": "Config"}"#).unwrap();
    for (variable, value, says) in [
        ("HOME", home.path(), "with ~/.kube/config: "),
        ("KUBECONFIG", &*file, "with the kubeconfig in $KUBECONFIG: "),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_leasewarden"))
            .args(["operator", "--context", "nowhere"])
            .env_remove("KUBECONFIG")
            .env(variable, value)
            .output()
            .await
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(says) && said.contains("nowhere"), "{said}");
    }
}
