//! docs/METRICS.md names the metrics that the daemons have: each of them, and no others.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn is_metric(word: &str) -> bool {
    (word.starts_with("fronthaul_") || word.starts_with("process_"))
        && word.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

/// Names in string literals of the sources under `folder`.
fn in_sources(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            in_sources(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            names.extend(text.split('"').filter(|word| is_metric(word)).map(ToOwned::to_owned));
        }
    }
}

#[test]
fn the_table_of_metrics_and_the_sources_name_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut counted = BTreeSet::new();
    for daemon in ["daemon", "edge", "transceiver", "backends"] {
        in_sources(&root.join("crates").join(daemon).join("src"), &mut counted);
    }
    let text = fs::read_to_string(root.join("docs/METRICS.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next());
    let documented: BTreeSet<String> = rows.filter(|name| is_metric(name)).map(ToOwned::to_owned).collect();
    let missing: Vec<_> = counted.difference(&documented).collect();
    let invented: Vec<_> = documented.difference(&counted).collect();
    assert!(missing.is_empty() && invented.is_empty(), "not documented: {missing:?}; not counted: {invented:?}");
    assert!(documented.len() > 30);
}
