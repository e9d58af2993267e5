//! `docs/scenarios.md` and the tests: each of the 26 has a row, and each row's tests exist.

use std::{collections::BTreeSet, fs, path::Path};

/// Every test of the crate that is named for a scenario.
fn tests_named_for_scenarios(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            tests_named_for_scenarios(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            for (_, rest) in text
                .match_indices("fn scenario_")
                .map(|(at, fn_)| text.split_at(at + fn_.len()))
            {
                let name: String = rest
                    .chars()
                    .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .collect();
                // Not this very text.
                if name.starts_with(|c: char| c.is_ascii_digit()) {
                    found.insert(format!("scenario_{name}"));
                }
            }
        }
    }
}

#[test]
fn the_page_of_scenarios_lists_all_26_with_tests_that_exist_and_no_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut exist = BTreeSet::new();
    tests_named_for_scenarios(&root.join("tests"), &mut exist);
    tests_named_for_scenarios(&root.join("src"), &mut exist);
    let page = fs::read_to_string(root.join("docs/scenarios.md")).unwrap();
    let mut listed = BTreeSet::new();
    for number in 1..=26 {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| {number} |")));
        let row = row.unwrap_or_else(|| panic!("no row for scenario {number}"));
        let own = format!("scenario_{number:02}_");
        let names: Vec<&str> = row
            .split('`')
            .filter(|part| part.starts_with("scenario_"))
            .collect();
        assert!(!names.is_empty(), "no test for scenario {number}");
        for name in names {
            assert!(name.starts_with(&own), "{name} is in the row of {number}");
            listed.insert(name.to_owned());
        }
    }
    assert_eq!(listed, exist, "what the page lists, and what exists");
}
