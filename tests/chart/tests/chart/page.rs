//! `docs/chart-features.md` and the tests: each feature has its row, and each row's tests exist.

use std::{collections::BTreeSet, path::Path};

use crate::support::{read, root};

/// The names of all tests in a folder.
fn tests(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let mut is_test = false;
            for line in text.lines().map(str::trim) {
                if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
                    is_test = true;
                } else if let Some((_, name)) = line.split_once("fn ").filter(|_| is_test) {
                    found.insert(name.split('(').next().unwrap().to_owned());
                    is_test = false;
                }
            }
        }
    }
}

#[test]
fn every_feature_of_the_page_has_tests_that_exist_and_every_test_of_the_chart_is_there() {
    let mut exist = BTreeSet::new();
    tests(&root().join("tests/chart"), &mut exist);
    let page = read("docs/chart-features.md");
    let mut listed = BTreeSet::new();
    let mut rows = 0;
    for row in page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| feature"))
    {
        let tests: Vec<_> = row
            .rsplit('|')
            .nth(1)
            .unwrap()
            .split('`')
            .skip(1)
            .step_by(2)
            .collect();
        assert!(!tests.is_empty(), "no test shows: {row}");
        for test in tests {
            assert!(exist.contains(test), "there is no test {test}: {row}");
            listed.insert(test.to_owned());
        }
        rows += 1;
    }
    assert!(rows >= 35, "{rows} rows");
    assert_eq!(
        exist.difference(&listed).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "tests that the page does not name"
    );
}
