//! What the link's tests share: a directory that is gone after its test, and a pair of linked peers on loopback.

#![allow(dead_code, reason = "each test file uses its part")]

use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use link::identity::{NodeIdentity, Role};
use link::ids::{EdgeId, TransceiverId};
use link::quic::{Endpoint, Link};

pub(crate) const EDGE: Role = Role::Edge(EdgeId(1));
pub(crate) const TRANSCEIVER: Role = Role::Transceiver(TransceiverId(7));
pub(crate) const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Private, unique, removed on drop.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fronthaul-link-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("the temporary directory is writable");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn identity(&self, role: Role) -> NodeIdentity {
        NodeIdentity::load_or_create(self.path(), role).expect("a fresh directory serves")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An edge and a transceiver with one link.
pub(crate) struct Pair {
    pub(crate) edge: Link,
    pub(crate) transceiver: Link,
    pub(crate) edge_endpoint: Endpoint,
    pub(crate) transceiver_endpoint: Endpoint,
    pub(crate) dir: TempDir,
}

impl Pair {
    pub(crate) async fn new() -> Self {
        let dir = TempDir::new();
        let transceiver_endpoint = Endpoint::server(&dir.identity(TRANSCEIVER), LOOPBACK).unwrap();
        let edge_endpoint = Endpoint::client(&dir.identity(EDGE)).unwrap();
        let address = transceiver_endpoint.local_addr().unwrap();
        let (edge, transceiver) =
            tokio::join!(edge_endpoint.connect(address, TransceiverId(7)), transceiver_endpoint.accept());
        Self { edge: edge.unwrap(), transceiver: transceiver.unwrap(), edge_endpoint, transceiver_endpoint, dir }
    }
}

/// Fails the test instead of hanging it.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), future).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within 20 s"),
    }
}
