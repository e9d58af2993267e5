//! What is generated is what the generators make of today's sources.

use crate::support::{chart, output, program, read};

#[test]
fn the_schema_is_fresh() {
    let schema = leasewarden_chart::schema(&read("charts/leasewarden/values.yaml")).unwrap();
    let file = read("charts/leasewarden/values.schema.json");
    assert!(
        file == schema,
        "values.schema.json differs from values.yaml; run: make chart"
    );
}

#[test]
fn the_readme_is_fresh() {
    let mut helm_docs = program("helm-docs");
    helm_docs
        .args(["--dry-run", "--log-level", "warning", "--chart-search-root"])
        .arg(chart());
    let made = output(&mut helm_docs).unwrap();
    assert!(
        read("charts/leasewarden/README.md") == made,
        "README.md differs from values.yaml; run: make chart"
    );
}

/// `leasewarden crd` is compared with crds/ by a test of its own.
#[test]
fn the_crd_is_fresh() {
    let own = read("crds/changestreamleaders.leasewarden.dev.yaml");
    assert!(
        read("charts/leasewarden/files/crd.yaml") == own,
        "files/crd.yaml differs from crds/; run: make chart"
    );
}

#[test]
fn the_readme_describes_every_value() {
    let readme = read("charts/leasewarden/README.md");
    let rows = readme.lines().filter(|line| line.starts_with("| `"));
    let undescribed: Vec<_> = rows
        .filter(|row| row.split(" | ").nth(3).is_none_or(|text| text.len() < 4))
        .collect();
    assert!(undescribed.is_empty(), "{undescribed:?}");
}
