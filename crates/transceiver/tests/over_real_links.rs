//! A transceiver with its threads and sockets, dialed over the loopback interface as an edge worker dials it.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

use std::path::PathBuf;
use std::time::Duration;

use link::datagram::{Batch, BatchWriter, Codec, MediaUp, parse};
use link::identity::{NodeIdentity, Role};
use link::ids::{EdgeId, Slot, TransceiverId};
use link::proto::{
    ChannelMessage, ChannelOpened, Close, Closed, Downlink, EdgeMessage, HelloRequest, LeaseGrant, LeaseRequest,
    OpenRequest, ReleaseRequest, SessionHeader, TransceiverMessage, edge_message, transceiver_message,
};
use link::quic::{Endpoint, Incoming, Link, SessionRx, SessionTx};
use transceiver::{Config, Transceiver};

/// A directory that goes with the test.
struct StateDir(PathBuf);

impl StateDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("fronthaul-transceiver-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for StateDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(state: &StateDir, seats: u32) -> Transceiver {
    let config = Config {
        link_bind: "127.0.0.1:0".parse().unwrap(),
        state_dir: state.0.display().to_string(),
        workers: 2,
        seats,
        ..Config::default()
    };
    Transceiver::start(&config).unwrap()
}

async fn dial(state: &StateDir, transceiver: &Transceiver, edge: u16) -> (Endpoint, Link) {
    let identity = NodeIdentity::load_or_create(&state.0, Role::Edge(EdgeId(edge))).unwrap();
    let endpoint = Endpoint::client(&identity).unwrap();
    let link = endpoint.connect(transceiver.link_addr(), TransceiverId(1)).await.unwrap();
    (endpoint, link)
}

fn request(session: u64, epoch: u64, model: &str) -> OpenRequest {
    OpenRequest { session, epoch, model: model.to_owned(), ..OpenRequest::default() }
}

async fn open(link: &Link, session: u64, epoch: u64, model: &str) -> Result<Slot, (tonic::Code, String)> {
    let opened = link.control().open(request(session, epoch, model)).await;
    opened
        .map(|response| Slot(response.into_inner().slot))
        .map_err(|status| (status.code(), status.message().to_owned()))
}

async fn leases(link: &Link) -> tonic::Streaming<LeaseGrant> {
    link.control().lease(LeaseRequest { edge: 1 }).await.unwrap().into_inner()
}

/// Waits for a grant that `wanted` accepts: one comes each second.
async fn granted(leases: &mut tonic::Streaming<LeaseGrant>, wanted: impl Fn(&LeaseGrant) -> bool) -> LeaseGrant {
    let wait = async {
        loop {
            let grant = leases.message().await.unwrap().unwrap();
            if wanted(&grant) {
                return grant;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("no such grant within 20 s")
}

#[tokio::test]
async fn a_call_is_opened_told_of_its_session_and_looped_back() {
    let state = StateDir::new("loop");
    let transceiver = start(&state, 4);
    let (_endpoint, link) = dial(&state, &transceiver, 1).await;
    let hello = link.control().hello(HelloRequest { edge: 1, software: "test".to_owned() }).await.unwrap().into_inner();
    assert_eq!((hello.transceiver, hello.models), (1, ["parrot", "loopback", "monologue"].map(str::to_owned).to_vec()));

    let slot = open(&link, 11, 1, "loopback").await.unwrap();
    let header = SessionHeader { session: 11, epoch: 1, slot: slot.0, ..SessionHeader::default() };
    let (mut tx, mut rx) = link.open_session(&header).await.unwrap();
    let opened = ChannelOpened { channel: 1, label: "oai-events".to_owned() };
    tx.send(&EdgeMessage { kind: Some(edge_message::Kind::ChannelOpened(opened)) }).await.unwrap();
    let message = rx.recv().await.unwrap().unwrap();
    let Some(transceiver_message::Kind::ChannelMessage(message)) = message.kind else { panic!("{message:?}") };
    let event: serde_json::Value = serde_json::from_slice(&message.data).unwrap();
    assert_eq!(
        (event["type"].as_str(), event["session"]["model"].as_str()),
        (Some("session.created"), Some("loopback"))
    );

    let mut batch = BatchWriter::media_up();
    for seq in 0..3_u16 {
        let payload = [8, u8::try_from(seq).unwrap()];
        let media = MediaUp {
            slot,
            epoch: 1,
            codec: Codec::Opus,
            marker: false,
            seq,
            rtp_timestamp: u32::from(seq) * 960,
            audio_level: None,
            age_us: 100,
            payload: &payload,
        };
        assert!(batch.push_frame(&media));
    }
    link.send_datagram(batch.take(0));
    let Incoming::Utterance(header, mut frames) = link.accept().await.unwrap() else { panic!("no utterance") };
    assert_eq!((header.slot, header.epoch, header.utterance), (slot.0, 1, 1));
    for seq in 0..3 {
        let frame = frames.recv().await.unwrap();
        assert_eq!((frame.samples, &frame.payload[..]), (960, &[8, seq][..]));
    }

    tx.send(&EdgeMessage { kind: Some(edge_message::Kind::Closed(Closed { reason: "bye".to_owned() })) })
        .await
        .unwrap();
    assert_eq!(rx.recv().await.unwrap(), None, "the session stream ends with the call");
    assert_eq!(frames.recv().await, None);
}

#[tokio::test]
async fn where_the_edge_asks_for_datagrams_real_time_audio_comes_by_them_and_repetitions_do_not() {
    let state = StateDir::new("direct");
    let transceiver = start(&state, 4);
    let (_endpoint, link) = dial(&state, &transceiver, 1).await;
    let asked = OpenRequest { downlink: Downlink::Datagram.into(), ..request(11, 1, "loopback") };
    let slot = Slot(link.control().open(asked).await.unwrap().into_inner().slot);
    let header = SessionHeader { session: 11, epoch: 1, slot: slot.0, ..SessionHeader::default() };
    let _stream = link.open_session(&header).await.unwrap();
    let mut came = Vec::new();
    for seq in [0, 1, 0, 2, 1_u16] {
        let payload = [8, u8::try_from(seq).unwrap()];
        let (rtp_timestamp, age_us) = (u32::from(seq) * 960, 0);
        let frame = MediaUp {
            slot,
            epoch: 1,
            codec: Codec::Opus,
            marker: false,
            seq,
            rtp_timestamp,
            audio_level: None,
            age_us,
            payload: &payload,
        };
        let mut batch = BatchWriter::media_up();
        assert!(batch.push_frame(&frame));
        link.send_datagram(batch.take(0));
    }
    while came.len() < 3 {
        let datagram = tokio::time::timeout(Duration::from_secs(20), link.read_datagram()).await.unwrap().unwrap();
        let Ok(Batch::MediaDown { frames, .. }) = parse(&datagram) else { panic!("{datagram:?}") };
        came.extend(frames.map(|frame| {
            let frame = frame.unwrap();
            (frame.slot, frame.epoch, frame.seq, frame.rtp_timestamp, frame.payload[1])
        }));
    }
    assert_eq!(came, [(slot, 1, 0, 0, 0), (slot, 1, 1, 960, 1), (slot, 1, 2, 1920, 2)]);
    let more = tokio::time::timeout(Duration::from_millis(300), link.read_datagram()).await;
    assert!(more.is_err(), "a repetition came back: {more:?}");
}

#[tokio::test]
async fn seats_are_leased_refused_and_given_back_and_slots_rest() {
    let state = StateDir::new("seats");
    let transceiver = start(&state, 2);
    let (_first, link) = dial(&state, &transceiver, 1).await;
    let (_second, other) = dial(&state, &transceiver, 2).await;
    let (mut mine, mut theirs) = (leases(&link).await, leases(&other).await);
    assert_eq!(granted(&mut mine, |_| true).await, LeaseGrant { seats: 2, draining: false });

    let slot = open(&link, 1, 1, "parrot").await.unwrap();
    assert_eq!(open(&link, 1, 1, "parrot").await, Ok(slot), "the same request again");
    open(&link, 2, 1, "parrot").await.unwrap();
    assert_eq!(granted(&mut theirs, |grant| grant.seats < 2).await.seats, 0);
    let refused = |code, reason: &str| Err((code, reason.to_owned()));
    assert_eq!(open(&other, 3, 1, "parrot").await, refused(tonic::Code::ResourceExhausted, "no_seat"));
    assert_eq!(open(&link, 1, 1, "gpt").await, refused(tonic::Code::NotFound, "model"));
    assert_eq!(open(&other, 1, 1, "parrot").await, refused(tonic::Code::FailedPrecondition, "stale_epoch"));
    assert_eq!(open(&link, 9, 0, "parrot").await, refused(tonic::Code::InvalidArgument, "malformed"));

    for epoch in [2, 1, 1] {
        let release = ReleaseRequest { session: 1, epoch, reason: "test".to_owned() };
        link.control().release(release).await.unwrap();
    }
    assert_eq!(granted(&mut theirs, |grant| grant.seats > 0).await.seats, 1);
    let next = open(&link, 4, 1, "parrot").await.unwrap();
    assert_ne!(next, slot, "a slot rests before it names another call");

    // A link that ends gives back all that its calls held.
    link.close("test");
    assert_eq!(granted(&mut theirs, |grant| grant.seats > 1).await.seats, 2);
}

#[tokio::test]
async fn the_end_of_a_session_stream_is_the_end_of_its_call() {
    let state = StateDir::new("stream");
    let transceiver = start(&state, 1);
    let (_endpoint, link) = dial(&state, &transceiver, 1).await;
    let (_other_endpoint, other) = dial(&state, &transceiver, 2).await;
    let mut theirs = leases(&other).await;
    let slot = open(&link, 1, 1, "parrot").await.unwrap();
    assert_eq!(granted(&mut theirs, |grant| grant.seats == 0).await.seats, 0);
    let (tx, _rx) = link
        .open_session(&SessionHeader { session: 1, epoch: 1, slot: slot.0, ..SessionHeader::default() })
        .await
        .unwrap();
    tx.finish();
    assert_eq!(granted(&mut theirs, |grant| grant.seats == 1).await.seats, 1);
}

#[tokio::test]
async fn a_stop_is_told_refuses_calls_and_closes_those_that_stay() {
    let state = StateDir::new("stop");
    let mut transceiver = start(&state, 3);
    let (_endpoint, link) = dial(&state, &transceiver, 1).await;
    let mut mine = leases(&link).await;
    let slot = open(&link, 1, 1, "parrot").await.unwrap();
    let (_tx, mut rx) = link
        .open_session(&SessionHeader { session: 1, epoch: 1, slot: slot.0, ..SessionHeader::default() })
        .await
        .unwrap();

    transceiver.stop(Duration::from_millis(1500));
    assert_eq!(granted(&mut mine, |grant| grant.draining).await.seats, 1);
    assert_eq!(open(&link, 2, 1, "parrot").await, Err((tonic::Code::Unavailable, "draining".to_owned())));
    let mut next = async || rx.recv().await.unwrap().unwrap().kind.unwrap();
    let first = next().await;
    let transceiver_message::Kind::Reflex(settings) = first else { panic!("{first:?}") };
    assert!(!settings.enabled, "as its config has it");
    let last = next().await;
    let transceiver_message::Kind::Close(close) = last else { panic!("{last:?}") };
    assert_eq!(close.reason, "transceiver stopping");
    tokio::time::timeout(Duration::from_secs(10), transceiver.ended()).await.unwrap();
    link.closed().await;
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let state = StateDir::new("port");
    let transceiver = start(&state, 1);
    let config =
        Config { link_bind: transceiver.link_addr(), state_dir: state.0.display().to_string(), ..Config::default() };
    let error = Transceiver::start(&config).unwrap_err().to_string();
    assert!(error.contains("link_bind") && error.contains("address in use"), "{error}");
}

#[tokio::test]
async fn a_ticket_brings_one_call() {
    let state = StateDir::new("ticket");
    let transceiver = start(&state, 3);
    let (_endpoint, link) = dial(&state, &transceiver, 1).await;
    let open = async |epoch| {
        let asked = OpenRequest { created_at: 1000, ticket_expires: 1060, ..request(9, epoch, "loopback") };
        let opened = link.control().open(asked).await;
        opened.map(|response| response.into_inner().slot).map_err(|status| status.message().to_owned())
    };
    let slot = open(1).await.unwrap();
    assert_eq!(open(1).await, Ok(slot), "the same call, asked for again");
    let release = ReleaseRequest { session: 9, epoch: 1, reason: "hang_up".to_owned() };
    link.control().release(release).await.unwrap();
    assert_eq!(open(1).await, Err("ticket_used".to_owned()));
    assert_eq!(granted(&mut leases(&link).await, |grant| grant.seats == 3).await.seats, 3, "no seat is taken");
}

async fn attach(link: &Link, session: u64, tenant: u32) -> (SessionTx<EdgeMessage>, SessionRx<TransceiverMessage>) {
    let header = SessionHeader { session, attach: true, tenant, ..SessionHeader::default() };
    link.open_session(&header).await.unwrap()
}

/// The next event of a type; `None` and why, if the stream ends before.
async fn event(rx: &mut SessionRx<TransceiverMessage>, wanted: &str) -> Result<serde_json::Value, Close> {
    let next = async {
        loop {
            match rx.recv().await.unwrap().unwrap().kind {
                Some(transceiver_message::Kind::ChannelMessage(message)) => {
                    let event: serde_json::Value = serde_json::from_slice(&message.data).unwrap();
                    if event["type"] == wanted {
                        return Ok(event);
                    }
                }
                Some(transceiver_message::Kind::Close(close)) => return Err(close),
                _ => {}
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), next).await.unwrap_or_else(|_| panic!("no {wanted} within 20 s"))
}

async fn say(tx: &mut SessionTx<EdgeMessage>, channel: u32, event: &str) {
    let message = ChannelMessage { channel, binary: false, data: event.as_bytes().to_vec() };
    tx.send(&EdgeMessage { kind: Some(edge_message::Kind::ChannelMessage(message)) }).await.unwrap();
}

const UPDATE: &str = r#"{"type":"session.update","session":{"type":"realtime","instructions":"Be brief."}}"#;

#[tokio::test]
async fn an_attached_stream_hears_the_call_acts_on_it_and_ends_with_it() {
    let state = StateDir::new("attached");
    let transceiver = start(&state, 4);
    let (_endpoint, link) = dial(&state, &transceiver, 1).await;
    // Another connection, as that of the thread of WebSockets is.
    let (_other, beside) = dial(&state, &transceiver, 1).await;
    let asked = OpenRequest { tenant: 7, ..request(21, 1, "parrot") };
    let slot = link.control().open(asked).await.unwrap().into_inner().slot;
    let header = SessionHeader { session: 21, epoch: 1, slot, ..SessionHeader::default() };
    let (mut tx, mut rx) = link.open_session(&header).await.unwrap();
    let opened = ChannelOpened { channel: 1, label: "oai-events".to_owned() };
    tx.send(&EdgeMessage { kind: Some(edge_message::Kind::ChannelOpened(opened)) }).await.unwrap();
    event(&mut rx, "session.created").await.unwrap();

    let (mut server, mut heard) = attach(&beside, 21, 7).await;
    say(&mut server, 0, UPDATE).await;
    for stream in [&mut heard, &mut rx] {
        assert_eq!(event(stream, "session.updated").await.unwrap()["session"]["instructions"], "Be brief.");
    }
    say(&mut tx, 1, UPDATE).await;
    event(&mut heard, "session.updated").await.unwrap();

    // One that leaves disturbs nobody.
    let (second, second_rx) = attach(&beside, 21, 7).await;
    second.finish();
    drop(second_rx);
    say(&mut tx, 1, UPDATE).await;
    event(&mut heard, "session.updated").await.unwrap();
    event(&mut rx, "session.updated").await.unwrap();

    tx.send(&EdgeMessage { kind: Some(edge_message::Kind::Closed(Closed { reason: "bye".to_owned() })) })
        .await
        .unwrap();
    let close = event(&mut heard, "nothing").await.unwrap_err();
    assert_eq!((close.code, close.reason.as_str()), (1000, "call over"));
}

#[tokio::test]
async fn a_call_of_another_tenant_cannot_be_told_from_none_and_five_listeners_are_too_many() {
    let state = StateDir::new("tenants");
    let transceiver = start(&state, 4);
    let (_endpoint, link) = dial(&state, &transceiver, 1).await;
    let asked = OpenRequest { tenant: 7, ..request(21, 1, "parrot") };
    let slot = link.control().open(asked).await.unwrap().into_inner().slot;
    let header = SessionHeader { session: 21, epoch: 1, slot, ..SessionHeader::default() };
    let _stream = link.open_session(&header).await.unwrap();
    for (session, tenant) in [(21, 8), (22, 7)] {
        let (_tx, mut rx) = attach(&link, session, tenant).await;
        let close = event(&mut rx, "nothing").await.unwrap_err();
        assert_eq!((close.code, close.reason.as_str()), (1008, "call_id_not_found"));
    }
    let mut listening = Vec::new();
    for _ in 0..4 {
        let (mut tx, mut rx) = attach(&link, 21, 7).await;
        say(&mut tx, 0, UPDATE).await;
        event(&mut rx, "session.updated").await.unwrap();
        listening.push((tx, rx));
    }
    let (_tx, mut rx) = attach(&link, 21, 7).await;
    assert_eq!(event(&mut rx, "nothing").await.unwrap_err().reason, "too_many_attached");
}
