//! Peers that hold a good certificate and do not behave.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use prost::Message as _;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use super::*;
use crate::identity::{NodeIdentity, Role};
use crate::ids::{EdgeId, TransceiverId};
use crate::proto::{SessionHeader, UtteranceFrame, UtteranceHeader};

const HEADER: SessionHeader = SessionHeader { session: 1, epoch: 1, slot: 2, attach: false, tenant: 0 };

struct Pair {
    edge: Link,
    transceiver: Link,
    _endpoints: (Endpoint, Endpoint),
    dir: PathBuf,
}

impl Pair {
    async fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fronthaul-quic-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::DirBuilder::new().mode(0o700).create(&dir).unwrap();
        let identity = |role| NodeIdentity::load_or_create(&dir, role).unwrap();
        let loopback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        let server = Endpoint::server(&identity(Role::Transceiver(TransceiverId(7))), loopback).unwrap();
        let client = Endpoint::client(&identity(Role::Edge(EdgeId(1)))).unwrap();
        let address = server.local_addr().unwrap();
        let (edge, transceiver) = tokio::join!(client.connect(address, TransceiverId(7)), server.accept());
        Self { edge: edge.unwrap(), transceiver: transceiver.unwrap(), _endpoints: (client, server), dir }
    }

    /// A stream of the edge that begins with these bytes.
    async fn raw_stream(&self, bytes: &[u8]) -> (quinn::SendStream, quinn::RecvStream) {
        let (mut send, recv) = self.edge.connection().open_bi().await.unwrap();
        send.write_all(bytes).await.unwrap();
        (send, recv)
    }

    /// The next session at the transceiver.
    async fn session(&self) -> SessionRx<crate::proto::EdgeMessage> {
        match soon(self.transceiver.accept()).await.unwrap() {
            Incoming::Session(header, _, rx) if header == HEADER => rx,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("not within 20 s")
}

fn session_stream(after_header: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind::SESSION];
    HEADER.encode_length_delimited(&mut bytes).unwrap();
    bytes.extend_from_slice(after_header);
    bytes
}

#[tokio::test]
async fn streams_without_a_header_hold_up_no_other() {
    let pair = Pair::new().await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(pair.raw_stream(&[]).await);
        silent.push(pair.raw_stream(&[kind::SESSION]).await);
        silent.push(pair.raw_stream(&[kind::SESSION, 20, 1]).await);
    }
    let _session = pair.raw_stream(&session_stream(&[])).await;
    pair.session().await;
}

#[tokio::test]
async fn a_header_that_does_not_come_in_time_is_counted_and_the_stream_refused() {
    let pair = Pair::new().await;
    let (send, _recv) = pair.raw_stream(&[kind::SESSION]).await;
    let accepting = pair.transceiver.clone();
    let accepting = tokio::spawn(async move { accepting.accept().await });
    let code = soon(send.stopped()).await.unwrap();
    assert_eq!(code, Some(quinn::VarInt::from_u32(stream_code::NO_HEADER)));
    assert_eq!(pair.transceiver.stats().streams_silent, 1);
    accepting.abort();
}

#[tokio::test]
async fn a_stream_of_an_unknown_kind_is_counted_and_refused() {
    let pair = Pair::new().await;
    let (send, _recv) = pair.raw_stream(&[200, 1, 2, 3]).await;
    let utterance = pair.raw_stream(&[kind::UTTERANCE, 0]).await;
    let _session = pair.raw_stream(&session_stream(&[])).await;
    pair.session().await;
    for send in [send, utterance.0] {
        assert_eq!(soon(send.stopped()).await.unwrap(), Some(quinn::VarInt::from_u32(stream_code::UNKNOWN_KIND)));
    }
    assert_eq!(pair.transceiver.stats().streams_unknown, 2);
}

#[tokio::test]
async fn a_message_that_claims_to_be_too_long_ends_its_stream_unread() {
    let pair = Pair::new().await;
    // 1 MiB and one byte.
    let (mut send, _recv) = pair.raw_stream(&session_stream(&[0x81, 0x80, 0x40])).await;
    let mut rx = pair.session().await;
    let error = StreamError::Oversize { bytes: 1024 * 1024 + 1, limit: MAX_SESSION_MESSAGE_BYTES };
    assert_eq!(soon(rx.recv()).await, Err(error.clone()));
    assert_eq!(soon(rx.recv()).await, Err(error), "and nothing after it");
    assert_eq!(soon(send.stopped()).await.unwrap(), Some(quinn::VarInt::from_u32(stream_code::OVERSIZE)));
    assert!(send.write_all(&[0]).await.is_err());
    assert_eq!(pair.transceiver.stats().messages_oversize, 1);
}

#[tokio::test]
async fn a_message_that_is_no_protobuf_ends_its_stream() {
    let pair = Pair::new().await;
    let (send, _recv) = pair.raw_stream(&session_stream(&[3, 0xff, 0xff, 0xff])).await;
    let mut rx = pair.session().await;
    assert_eq!(soon(rx.recv()).await, Err(StreamError::Malformed));
    assert_eq!(soon(send.stopped()).await.unwrap(), Some(quinn::VarInt::from_u32(stream_code::MALFORMED)));
    assert_eq!(pair.transceiver.stats().messages_malformed, 1);
}

#[tokio::test]
async fn a_stream_that_ends_within_a_message_says_so() {
    let pair = Pair::new().await;
    let (mut send, _recv) = pair.raw_stream(&session_stream(&[100, 1, 2])).await;
    send.finish().unwrap();
    let mut rx = pair.session().await;
    assert_eq!(soon(rx.recv()).await, Err(StreamError::Truncated));
}

#[tokio::test]
async fn an_utterance_frame_has_a_bound_of_its_own() {
    let pair = Pair::new().await;
    let mut send = pair.transceiver.connection().open_uni().await.unwrap();
    let mut bytes = vec![kind::UTTERANCE];
    UtteranceHeader { utterance: 1, ..Default::default() }.encode_length_delimited(&mut bytes).unwrap();
    UtteranceFrame { samples: 960, payload: vec![1; 100].into() }.encode_length_delimited(&mut bytes).unwrap();
    bytes.extend_from_slice(&[0x81, 0x80, 0x04]); // 64 KiB and one byte
    send.write_all(&bytes).await.unwrap();
    let Incoming::Utterance(_, mut rx) = soon(pair.edge.accept()).await.unwrap() else { panic!("no utterance") };
    assert_eq!(soon(rx.recv()).await.unwrap().samples, 960);
    assert_eq!(soon(rx.recv()).await, None);
    let limit = MAX_UTTERANCE_FRAME_BYTES;
    assert_eq!(rx.end(), Some(&UtteranceEnd::Broken(StreamError::Oversize { bytes: limit + 1, limit })));
}

#[tokio::test]
async fn random_streams_and_datagrams_leave_the_link_serving() {
    let pair = Pair::new().await;
    let transceiver = pair.transceiver.clone();
    let accepting = tokio::spawn(async move {
        let mut sessions = 0;
        loop {
            match transceiver.accept().await.unwrap() {
                Incoming::Session(header, _, mut rx) if header == HEADER => {
                    sessions += 1;
                    if sessions == 20 {
                        return;
                    }
                    tokio::spawn(async move { while let Ok(Some(_)) = rx.recv().await {} });
                }
                _ => {}
            }
        }
    });
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = vec![0; rng.random_range(0..2000)];
        rng.fill_bytes(&mut bytes);
        if let (Some(first), true) = (bytes.first_mut(), rng.random()) {
            *first = rng.random_range(0..4);
        }
        pair.edge.send_datagram(bytes.iter().copied().take(1000).collect());
        if seed % 10 == 0 {
            bytes = session_stream(&bytes);
        }
        // Refused streams fail to write the rest.
        let (mut send, _recv) = pair.edge.connection().open_bi().await.unwrap();
        let _ = send.write_all(&bytes).await;
        let _ = send.finish();
    }
    soon(accepting).await.unwrap();
}
