//! `GET /sessions` and `GET /sessions/{id}` over the loopback interface, of a call over a real link. One test, because the metrics registry
//! belongs to the process.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::net::SocketAddr;
use std::time::Duration;

use daemon::{Lifecycle, Metrics, admin, bind};
use link::identity::{NodeIdentity, Role};
use link::ids::{EdgeId, TransceiverId};
use link::proto::{
    ChannelMessage, ChannelOpened, Closed, EdgeMessage, OpenRequest, SessionHeader, edge_message, transceiver_message,
};
use link::quic::Endpoint;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use transceiver::record::{ExportedCalls, ExportedSession};
use transceiver::{Config, Transceiver};

async fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: admin\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn calls(address: SocketAddr) -> ExportedCalls {
    let (status, body) = get(address, "/sessions").await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Asks until the answer is as wanted: the worker hears of things in its own time.
async fn told(address: SocketAddr, wanted: impl Fn(&ExportedSession) -> bool) -> ExportedSession {
    for _ in 0..200 {
        let (status, body) = get(address, "/sessions/rtc_000000000000000b").await;
        if status == 200 {
            let session: ExportedSession = serde_json::from_str(&body).unwrap();
            if wanted(&session) {
                return session;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no such answer within 10 s");
}

#[tokio::test]
async fn a_call_is_told_while_it_goes_on_and_after_it_ended() {
    let state = std::env::temp_dir().join(format!("fronthaul-transceiver-records-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&state);
    let config = Config {
        link_bind: "127.0.0.1:0".parse().unwrap(),
        state_dir: state.display().to_string(),
        workers: 2,
        ..Config::default()
    };
    let transceiver = Transceiver::start(&config).unwrap();
    let port = bind::tcp("admin_bind", SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = port.local_addr().unwrap();
    let pages = transceiver.records().pages();
    tokio::spawn(admin::serve_with(port, Metrics::install().unwrap(), Lifecycle::new(), pages));

    let (status, body) = get(address, "/sessions/rtc_000000000000000b").await;
    assert_eq!((status, body.contains("no call of that id")), (404, true), "{body}");
    assert_eq!(get(address, "/sessions/11").await.0, 400);
    assert_eq!(calls(address).await, ExportedCalls::default());

    let identity = NodeIdentity::load_or_create(&state, Role::Edge(EdgeId(1))).unwrap();
    let endpoint = Endpoint::client(&identity).unwrap();
    let link = endpoint.connect(transceiver.link_addr(), TransceiverId(1)).await.unwrap();
    let request = OpenRequest { session: 11, epoch: 1, model: "parrot".to_owned(), ..OpenRequest::default() };
    let slot = link.control().open(request).await.unwrap().into_inner().slot;
    let (mut tx, mut rx) =
        link.open_session(&SessionHeader { session: 11, epoch: 1, slot, ..SessionHeader::default() }).await.unwrap();
    let opened = ChannelOpened { channel: 1, label: "oai-events".to_owned() };
    tx.send(&EdgeMessage { kind: Some(edge_message::Kind::ChannelOpened(opened)) }).await.unwrap();
    let create = ChannelMessage { channel: 1, binary: false, data: br#"{"type":"response.create"}"#.to_vec() };
    tx.send(&EdgeMessage { kind: Some(edge_message::Kind::ChannelMessage(create)) }).await.unwrap();
    loop {
        let Some(transceiver_message::Kind::ChannelMessage(message)) = rx.recv().await.unwrap().unwrap().kind else {
            continue;
        };
        if String::from_utf8(message.data).unwrap().contains("\"response.done\"") {
            break;
        }
    }
    let live = told(address, |session| session.turns.len() == 1).await;
    assert_eq!((live.session.as_str(), &*live.model, live.live), ("rtc_000000000000000b", "parrot", true));
    assert_eq!((live.turns[0].turn, live.turns[0].response), (None, Some(1)));
    let list = calls(address).await;
    assert_eq!((list.live, list.left_out, list.calls.len()), (1, 0, 1));
    let call = &list.calls[0];
    assert_eq!((&*call.session, &*call.state, call.turns), ("rtc_000000000000000b", "listening", 1));
    assert!(call.live && call.began_unix_ms > 1_600_000_000_000 && call.wrong.is_none(), "{call:?}");

    tx.send(&EdgeMessage { kind: Some(edge_message::Kind::Closed(Closed { reason: "bye".to_owned() })) })
        .await
        .unwrap();
    let ended = told(address, |session| !session.live).await;
    assert_eq!((ended.turns.len(), ended.turns[0].response), (1, Some(1)));
    assert!(ended.turns[0].moments.over_ms.is_some());
    let list = calls(address).await;
    assert_eq!((list.live, &*list.calls[0].state, list.calls[0].ended_ago_ms.is_some()), (0, "over", true));
    drop(transceiver);
    assert_eq!(get(address, "/sessions/rtc_000000000000000b").await.0, 404, "it went with its workers");
    let _ = std::fs::remove_dir_all(&state);
}
