//! The table of crates in docs/ARCHITECTURE.md is what the manifests say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Which workspace crates each crate imports; the twin of the table in docs/ARCHITECTURE.md.
const MAY_IMPORT: [(&str, &[&str]); 12] = [
    ("rtc", &[]),
    ("voice", &[]),
    ("realtime", &[]),
    ("link", &[]),
    ("net", &[]),
    ("daemon", &[]),
    ("sim", &[]),
    ("backends", &["voice"]),
    ("edge", &["rtc", "realtime", "link", "net", "daemon"]),
    ("transceiver", &["backends", "voice", "realtime", "link", "net", "daemon"]),
    ("loadgen", &["link", "net", "voice"]),
    ("fronthaul", &["backends", "edge", "transceiver", "loadgen", "daemon", "net"]),
];

/// Crates that may do no I/O and read no clock: what would let them is not in their source.
const PURE: [&str; 4] = ["rtc", "voice", "realtime", "sim"];
const IMPURE: [&str; 8] = [
    "Instant::now",
    "SystemTime",
    "std::net::UdpSocket",
    "std::net::Tcp",
    "std::fs",
    "std::thread",
    "tokio",
    "rand::rng",
];

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Workspace imports of every member by kind: `None` = normal.
fn imports() -> BTreeMap<String, Vec<(String, Option<String>)>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|package| {
            let inside = package["dependencies"].as_array().expect("dependencies").iter();
            let inside = inside.filter(|dependency| dependency["path"].is_string());
            let named = inside.filter_map(|dependency| Some((text(&dependency["name"])?, text(&dependency["kind"]))));
            (text(&package["name"]).expect("a name"), named.collect())
        })
        .collect()
}

#[test]
fn imports_stay_in_the_table() {
    let imports = imports();
    let known: BTreeSet<&str> =
        MAY_IMPORT.iter().map(|&(name, _)| name).chain(["audio", "e2e", "floods", "instructions"]).collect();
    assert_eq!(imports.keys().map(String::as_str).collect::<BTreeSet<_>>(), known, "a crate is missing in the table");
    for (name, allowed) in MAY_IMPORT {
        for (import, kind) in &imports[name] {
            match kind.as_deref() {
                None => assert!(allowed.contains(&import.as_str()), "{name} may not import {import}"),
                Some("dev") => assert!(
                    import == "sim" || allowed.contains(&import.as_str()),
                    "{name} may not import {import} in its tests"
                ),
                Some(kind) => panic!("{name} imports {import} as a {kind} dependency"),
            }
        }
    }
}

#[test]
fn the_table_in_the_docs_is_this_one() {
    let docs = std::fs::read_to_string(workspace().join("docs/ARCHITECTURE.md")).expect("docs/ARCHITECTURE.md");
    for (name, allowed) in MAY_IMPORT {
        let row = docs.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("{name} has no row in docs/ARCHITECTURE.md"));
        let last = row.trim_end_matches('|').rsplit('|').next().unwrap_or_default();
        let listed: BTreeSet<&str> =
            last.split(',').map(str::trim).filter(|word| !word.is_empty() && *word != "-").collect();
        assert_eq!(listed, allowed.iter().copied().collect(), "{name} in docs/ARCHITECTURE.md");
    }
}

#[test]
fn pure_crates_have_no_way_to_the_outside() {
    for name in PURE {
        each_source(&workspace().join(format!("crates/{name}/src")), &mut |path, text| {
            let product = text.split("#[cfg(test)]").next().unwrap_or_default();
            for line in product.lines().filter(|line| !line.trim_start().starts_with("//")) {
                for word in IMPURE {
                    assert!(!line.contains(word), "{} uses {word}: {line}", path.display());
                }
            }
        });
    }
}

#[test]
fn unsafe_has_two_addresses() {
    let crates = workspace().join("crates");
    each_source(&crates, &mut |path, text| {
        let inside = path.strip_prefix(&crates).expect("below crates");
        if inside.starts_with("net") || inside == Path::new("voice/src/opus.rs") {
            return;
        }
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            assert!(!line.contains("unsafe {") && !line.contains("allow(unsafe_code"), "{}: {line}", path.display());
        }
    });
}

/// Looks at every source file of the product: `tests.rs` and folders of tests are not of it.
fn each_source(folder: &Path, look: &mut dyn FnMut(&Path, &str)) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.ends_with("tests") || path.ends_with("tests.rs") {
            continue;
        }
        if path.is_dir() {
            each_source(&path, look);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            look(&path, &std::fs::read_to_string(&path).expect("a source file"));
        }
    }
}

#[test]
fn files_named_in_the_table_of_standards_exist() {
    let docs = std::fs::read_to_string(workspace().join("docs/RFC.md")).expect("docs/RFC.md");
    let rows: Vec<&str> = docs.lines().filter(|line| line.starts_with("| RFC")).collect();
    assert!(rows.len() > 20, "the tables are gone");
    for row in rows {
        let file = row.split('|').nth(3).unwrap_or_default().trim().trim_matches('`');
        assert!(file == "-" || workspace().join("crates").join(file).is_file(), "{file} in {row}");
    }
}
