//! The page shows the code that the tests run.

#[test]
fn the_page_shows_the_tested_code() {
    let page = include_str!("../../../docs/fencing.md");
    let mut shown = 0;
    for source in [
        include_str!("sql.rs"),
        include_str!("document.rs"),
        include_str!("http.rs"),
        include_str!("object.rs"),
    ] {
        // What stands between two marks of one name is shown.
        let mut rest = source;
        while let Some((_, after)) = rest.split_once("\n// [") {
            let (name, after) = after.split_once("]\n").unwrap();
            let (code, after) = after.split_once(&format!("// [{name}]\n")).unwrap();
            assert!(
                page.contains(&format!("```rust\n{code}```")),
                "docs/fencing.md does not show [{name}] as it is"
            );
            shown += 1;
            rest = after;
        }
    }
    assert_eq!(
        page.matches("```rust\n").count(),
        shown,
        "the page shows code that nothing tests"
    );
    assert_eq!(shown, 5);
}
