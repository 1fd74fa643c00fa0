//! The files of a node: made once, safe against processes that start at once, refused when open to others.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use link::identity::{IdentityError, NodeIdentity, Role, route_secret};
use link::ids::{EdgeId, TransceiverId};

mod support;
use support::TempDir;

const EDGE: Role = Role::Edge(EdgeId(1));

fn files(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_start_makes_the_files_and_the_next_one_reads_them() {
    let dir = TempDir::new();
    let state = dir.path().join("a/b");
    NodeIdentity::load_or_create(&state, EDGE).unwrap();
    route_secret(&state).unwrap();
    let made = files(&state);
    let names: Vec<_> = made.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ca-key.pem", "ca.pem", "cid.key", "edge-1.pem", "lock", "reset.key", "route.key"]);
    assert_eq!(mode(&state), 0o700);
    for (name, _) in &made {
        assert_eq!(mode(&state.join(name)), 0o600, "{name}");
    }
    NodeIdentity::load_or_create(&state, EDGE).unwrap();
    route_secret(&state).unwrap();
    assert_eq!(files(&state), made);
}

#[test]
fn nodes_that_start_at_once_agree() {
    let dir = TempDir::new();
    let secrets: Vec<[u8; 32]> = std::thread::scope(|scope| {
        let starts: Vec<_> = (1..=8)
            .map(|id| {
                let state = dir.path().join("state");
                scope.spawn(move || {
                    NodeIdentity::load_or_create(&state, Role::Transceiver(TransceiverId(id % 3))).unwrap();
                    route_secret(&state).unwrap()
                })
            })
            .collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    assert!(secrets.iter().all(|secret| *secret == secrets[0]));
}

#[test]
fn a_secret_that_others_can_read_is_refused_by_name() {
    let dir = TempDir::new();
    NodeIdentity::load_or_create(dir.path(), EDGE).unwrap();
    let path = dir.path().join("reset.key");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let error = NodeIdentity::load_or_create(dir.path(), EDGE).unwrap_err();
    assert!(matches!(&error, IdentityError::Permissions { path: named, mode: 0o644, .. } if *named == path), "{error}");
    assert!(error.to_string().contains("chmod 600"), "{error}");
}

#[test]
fn a_directory_that_others_can_write_to_is_refused() {
    let dir = TempDir::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let error = NodeIdentity::load_or_create(dir.path(), EDGE).unwrap_err();
    assert!(matches!(error, IdentityError::Permissions { fix: 0o700, .. }), "{error}");
}

#[test]
fn a_damaged_secret_is_named_and_left_alone() {
    let dir = TempDir::new();
    route_secret(dir.path()).unwrap();
    fs::write(dir.path().join("route.key"), "short").unwrap();
    let error = route_secret(dir.path()).unwrap_err();
    assert!(error.to_string().contains("route.key"), "{error}");
    assert_eq!(fs::read(dir.path().join("route.key")).unwrap(), b"short");
}

#[test]
fn a_certificate_of_another_authority_is_replaced() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    NodeIdentity::load_or_create(dir.path(), EDGE).unwrap();
    NodeIdentity::load_or_create(other.path(), EDGE).unwrap();
    let foreign = fs::read(other.path().join("edge-1.pem")).unwrap();
    fs::write(dir.path().join("edge-1.pem"), &foreign).unwrap();
    NodeIdentity::load_or_create(dir.path(), EDGE).unwrap();
    assert_ne!(fs::read(dir.path().join("edge-1.pem")).unwrap(), foreign);
}

#[test]
fn without_the_authoritys_key_a_given_certificate_serves_and_a_missing_one_is_asked_for() {
    let dir = TempDir::new();
    NodeIdentity::load_or_create(dir.path(), EDGE).unwrap();
    fs::remove_file(dir.path().join("ca-key.pem")).unwrap();
    NodeIdentity::load_or_create(dir.path(), EDGE).unwrap();
    let error = NodeIdentity::load_or_create(dir.path(), Role::Edge(EdgeId(2))).unwrap_err().to_string();
    assert!(error.contains("edge-2.pem") && error.contains("spiffe://fronthaul/edge/2"), "{error}");
}

#[test]
fn an_authority_key_that_does_not_fit_its_certificate_is_named() {
    let (dir, other) = (TempDir::new(), TempDir::new());
    NodeIdentity::load_or_create(dir.path(), EDGE).unwrap();
    NodeIdentity::load_or_create(other.path(), EDGE).unwrap();
    fs::copy(other.path().join("ca-key.pem"), dir.path().join("ca-key.pem")).unwrap();
    let error = NodeIdentity::load_or_create(dir.path(), Role::Edge(EdgeId(2))).unwrap_err().to_string();
    assert!(error.contains("ca-key.pem") && error.contains("does not belong"), "{error}");
}

#[test]
fn the_path_is_in_the_error_of_an_unusable_directory() {
    let dir = TempDir::new();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = NodeIdentity::load_or_create(&file.join("state"), EDGE).unwrap_err();
    assert!(error.to_string().contains(&file.display().to_string()), "{error}");
}

#[test]
fn spiffe_ids_have_one_spelling() {
    for role in [EDGE, Role::Edge(EdgeId(65535)), Role::Transceiver(TransceiverId(4_000_000_000))] {
        assert_eq!(Role::from_spiffe_id(&role.spiffe_id()), Some(role));
    }
    for uri in [
        "spiffe://fronthaul/edge/",
        "spiffe://fronthaul/edge/01",
        "spiffe://fronthaul/edge/+1",
        "spiffe://fronthaul/edge/65536",
        "spiffe://fronthaul/edge/1/2",
        "spiffe://other/edge/1",
        "spiffe://fronthaul/store/1",
        "https://fronthaul/edge/1",
    ] {
        assert_eq!(Role::from_spiffe_id(uri), None, "{uri}");
    }
}

#[test]
fn an_identity_shows_its_role_and_nothing_secret() {
    let dir = TempDir::new();
    let identity = NodeIdentity::load_or_create(dir.path(), EDGE).unwrap();
    assert_eq!(format!("{identity:?}"), "NodeIdentity { role: Edge(EdgeId(1)), .. }");
}
