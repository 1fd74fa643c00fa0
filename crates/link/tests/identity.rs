//! The files of a node: made once, safe against processes that start at once, refused when open to others.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use link::identity::keys::{Found, KeySet, KeySource, RotateError};
use link::identity::{IdentityError, NodeIdentity, Role};
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

const NOW: u32 = 1_790_000_000;

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_first_start_makes_the_files_and_the_next_one_reads_them() {
    let dir = TempDir::new();
    let state = dir.path().join("a/b");
    NodeIdentity::load_or_create(&state, EDGE).unwrap();
    let keys = KeySource::StateDir(state.clone());
    assert_eq!(keys.load(NOW).unwrap().1, Found::Made);
    let made = files(&state);
    let names: Vec<_> = made.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["ca-key.pem", "ca.pem", "cid.key", "edge-1.pem", "lock", "pop.keys", "reset.key"]);
    assert_eq!(mode(&state), 0o700);
    for (name, _) in &made {
        assert_eq!(mode(&state.join(name)), 0o600, "{name}");
    }
    NodeIdentity::load_or_create(&state, EDGE).unwrap();
    assert_eq!(keys.load(NOW + 1).unwrap().1, Found::Read);
    assert_eq!(files(&state), made);
}

#[test]
fn nodes_that_start_at_once_agree() {
    let dir = TempDir::new();
    let secrets: Vec<String> = std::thread::scope(|scope| {
        let starts: Vec<_> = (1..=8)
            .map(|id| {
                let state = dir.path().join("state");
                scope.spawn(move || {
                    NodeIdentity::load_or_create(&state, Role::Transceiver(TransceiverId(id % 3))).unwrap();
                    KeySource::StateDir(state).load(NOW).unwrap().0.to_text()
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
    let keys = KeySource::StateDir(dir.path().to_owned());
    keys.load(NOW).unwrap();
    write(&dir.path().join("pop.keys"), "short");
    let error = keys.load(NOW).unwrap_err();
    assert!(error.to_string().contains("pop.keys"), "{error}");
    assert_eq!(fs::read(dir.path().join("pop.keys")).unwrap(), b"short");
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

#[test]
fn the_one_secret_of_a_former_version_becomes_key_0() {
    let dir = TempDir::new();
    write(&dir.path().join("route.key"), &"07".repeat(32));
    let keys = KeySource::StateDir(dir.path().to_owned());
    let (set, found) = keys.load(NOW).unwrap();
    assert_eq!(found, Found::Adopted);
    let route = link::route::Route {
        edge: EdgeId(1),
        transceiver: TransceiverId(2),
        session: link::ids::SessionId(3),
        minted: NOW,
    };
    let former = link::route::RouteKeys::from_secret(&[7; 32]).seal(&route);
    assert_eq!(set.route_keys(NOW).open(&former), Some(route));
    assert!(!dir.path().join("route.key").exists());
    assert_eq!(keys.load(NOW).unwrap(), (set, Found::Read));
}

#[test]
fn a_rotated_key_opens_at_once_signs_later_and_is_dropped_when_it_was_replaced_long_ago() {
    let mut set = KeySet::make(NOW).unwrap();
    let first = set.signing(NOW).clone();
    set.rotate(NOW + 100, 60, 3600).unwrap();
    let second = set.keys()[0].clone();
    assert_eq!((first.id(), second.id()), (0, 1));
    assert_ne!(first.fingerprint(), second.fingerprint());
    assert_eq!((set.signing(NOW + 159).id(), set.signing(NOW + 160).id()), (0, 1));
    assert_eq!(set.route_keys(NOW + 159).newest(), 0);
    assert_eq!(set.rotate(NOW + 150, 60, 3600), Err(RotateError::Pending { id: 1, seconds: 10 }));

    set.rotate(NOW + 160 + 3600, 60, 3600).unwrap();
    assert_eq!(set.keys().iter().map(|key| key.id()).collect::<Vec<_>>(), [2, 1, 0], "replaced just an hour ago");
    set.rotate(NOW + 160 + 3661, 60, 3600).unwrap();
    assert_eq!(set.keys().iter().map(|key| key.id()).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(KeySet::from_text(&set.to_text()).as_ref(), Ok(&set));
}

#[test]
fn sixteen_ids_go_round_and_are_not_taken_from_running_calls() {
    let mut set = KeySet::make(NOW).unwrap();
    for n in 1..16 {
        set.rotate(NOW + n, 0, 3600).unwrap();
    }
    assert_eq!(set.rotate(NOW + 16, 0, 3600), Err(RotateError::Full));
    set.rotate(NOW + 16, 0, 0).unwrap();
    assert_eq!(set.keys()[0].id(), 0);
    assert_eq!(set.keys().len(), 2, "only the one that signed until now is kept");
}

#[test]
fn a_key_set_says_what_is_wrong_with_it_and_never_shows_a_secret() {
    let set = KeySet::make(NOW).unwrap();
    let text = set.to_text();
    let line = text.lines().last().unwrap();
    let secret = line.split(' ').nth(3).unwrap();
    let shown = format!("{set:?}");
    assert!(!shown.contains(secret) && shown.contains("secret: .."), "{shown}");
    for (text, reason) in [
        ("# nothing", "no key"),
        ("16 1 1 00 a b", "no key id"),
        ("x", "no key id"),
        ("1", "no time of making"),
        ("1 2 3 00 a b", "64 hex digits"),
        (&format!("{line}\n{line}"), "line 2 names key 0 a second time"),
        (&format!("{line} more"), "goes on"),
    ] {
        let error = KeySet::from_text(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn a_named_file_is_not_made_in_passing() {
    let dir = TempDir::new();
    let path = dir.path().join("keys");
    let source = KeySource::File(path.clone());
    let error = source.load(NOW).unwrap_err().to_string();
    assert!(error.contains("fronthaul keys new --file"), "{error}");
    let made = KeySet::make(NOW).unwrap();
    source
        .update(|held| {
            assert_eq!(held, None);
            Ok((made.clone(), ()))
        })
        .unwrap();
    assert_eq!((source.load(NOW).unwrap(), mode(&path)), ((made, Found::Read), 0o600));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(source.load(NOW).unwrap_err().to_string().contains("chmod 600"));
}
