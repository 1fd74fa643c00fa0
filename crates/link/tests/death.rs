//! A peer that dies without a word is noticed: at once when its process is started again, else by silence.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use link::ids::TransceiverId;
use link::quic::{Endpoint, IDLE_TIMEOUT, Link, LinkLost, SILENCE};
use tokio::runtime::{Builder, Runtime};

mod support;
use support::{EDGE, LOOPBACK, TRANSCEIVER, TempDir, soon};

/// A transceiver on a runtime of its own, which can be taken from it in mid-sentence as a kill does.
struct Mortal {
    runtime: Runtime,
    address: SocketAddr,
}

impl Mortal {
    fn start(dir: &TempDir, address: SocketAddr) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let identity = dir.identity(TRANSCEIVER);
        let endpoint = runtime.block_on(async { Endpoint::server(&identity, address) }).unwrap();
        let address = endpoint.local_addr().unwrap();
        runtime.spawn(async move {
            let mut links = Vec::new();
            while let Some(link) = endpoint.accept().await {
                links.push(link);
            }
        });
        Self { runtime, address }
    }

    /// Nothing is sent any more: the drivers of the connections are gone before the connections.
    fn kill(self) {
        self.runtime.shutdown_timeout(Duration::from_secs(5));
    }
}

async fn dial(dir: &TempDir, transceiver: &Mortal) -> (Endpoint, Link) {
    let endpoint = Endpoint::client(&dir.identity(EDGE)).unwrap();
    let link = soon("the link", endpoint.connect(transceiver.address, TransceiverId(7))).await.unwrap();
    // Lets the handshake be confirmed, so that the keep-alive runs.
    tokio::time::sleep(Duration::from_millis(100)).await;
    (endpoint, link)
}

#[test]
fn a_restarted_transceiver_resets_its_former_links_within_a_second() {
    let dir = TempDir::new();
    let edge = Builder::new_current_thread().enable_all().build().unwrap();
    let first = Mortal::start(&dir, LOOPBACK);
    let address = first.address;
    let (endpoint, link) = edge.block_on(dial(&dir, &first));
    first.kill();
    let second = Mortal::start(&dir, address);
    let restarted = Instant::now();
    let lost = edge.block_on(soon("the reset", link.closed()));
    let took = restarted.elapsed();
    assert_eq!(lost, LinkLost::PeerRestarted);
    assert!(took < Duration::from_secs(1), "{took:?}");
    // And the edge gets through to the new one.
    edge.block_on(soon("the new link", endpoint.connect(address, TransceiverId(7)))).unwrap();
    second.kill();
}

#[test]
fn a_vanished_transceiver_is_noticed_by_its_silence() {
    let dir = TempDir::new();
    let edge = Builder::new_current_thread().enable_all().build().unwrap();
    let transceiver = Mortal::start(&dir, LOOPBACK);
    let (_endpoint, link) = edge.block_on(dial(&dir, &transceiver));
    transceiver.kill();
    let killed = Instant::now();
    let lost = edge.block_on(soon("the end", link.closed()));
    let took = killed.elapsed();
    assert_eq!(lost, LinkLost::TimedOut);
    assert!(took <= SILENCE + Duration::from_millis(500), "{took:?}");
    assert!(took < IDLE_TIMEOUT, "{took:?}");
}

#[test]
fn an_idle_link_lives() {
    let dir = TempDir::new();
    let edge = Builder::new_current_thread().enable_all().build().unwrap();
    let transceiver = Mortal::start(&dir, LOOPBACK);
    let (_endpoint, link) = edge.block_on(dial(&dir, &transceiver));
    edge.block_on(async { tokio::time::sleep(IDLE_TIMEOUT * 2).await });
    assert_eq!(link.close_reason(), None);
    transceiver.kill();
}
