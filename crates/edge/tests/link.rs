//! A whole edge on loopback sockets and the real link, with transceivers that the test plays.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::Client;
use common::live::{Caller, StateDir, admin, agent, eventually, metric, metrics};
use edge::{Config, Edge, TransceiverConfig};
use link::datagram::{Batch, BatchWriter, Codec, MediaUp, parse};
use link::identity::{NodeIdentity, Role};
use link::ids::{Slot, TransceiverId};
use link::proto::transceiver_server::Transceiver;
use link::proto::{
    ChannelMessage, EdgeMessage, HelloRequest, HelloResponse, LeaseGrant, LeaseRequest, OpenRequest, OpenResponse,
    ReleaseRequest, ReleaseResponse, SessionHeader, TransceiverMessage, UtteranceFrame, UtteranceHeader, edge_message,
    transceiver_message,
};
use link::quic::{Endpoint, Incoming, Link, SessionRx, SessionTx, UtteranceTx};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};

/// What a played transceiver was told, and how it behaves.
#[derive(Default)]
struct Script {
    refuses: AtomicBool,
    /// Datagrams sent to whoever opens a session.
    garbage: Mutex<Vec<Vec<u8>>>,
    slots: AtomicU32,
    opened: Mutex<Vec<(u64, u64)>>,
    released: Mutex<Vec<(u64, u64)>>,
    closed: Mutex<Vec<String>>,
}

struct Service(Arc<Script>);

#[tonic::async_trait]
impl Transceiver for Service {
    type LeaseStream = Pin<Box<dyn Stream<Item = Result<LeaseGrant, Status>> + Send>>;

    async fn hello(&self, _: Request<HelloRequest>) -> Result<Response<HelloResponse>, Status> {
        let models = vec!["mirror".to_owned()];
        Ok(Response::new(HelloResponse { transceiver: 0, software: "played".to_owned(), models }))
    }

    async fn lease(&self, _: Request<LeaseRequest>) -> Result<Response<Self::LeaseStream>, Status> {
        let (grants, stream) = mpsc::channel(1);
        tokio::spawn(async move {
            while grants.send(LeaseGrant { seats: 2, draining: false }).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream).map(Ok))))
    }

    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<OpenResponse>, Status> {
        let request = request.into_inner();
        if self.0.refuses.load(Ordering::Relaxed) {
            return Err(Status::resource_exhausted("played refusal"));
        }
        self.0.opened.lock().unwrap().push((request.session, request.epoch));
        Ok(Response::new(OpenResponse { slot: self.0.slots.fetch_add(1, Ordering::Relaxed) }))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        let request = request.into_inner();
        self.0.released.lock().unwrap().push((request.session, request.epoch));
        Ok(Response::new(ReleaseResponse {}))
    }
}

/// A transceiver that returns messages on the session stream and frames as one long utterance.
struct Mirror {
    address: SocketAddr,
    script: Arc<Script>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    fn start(state: &StateDir, id: u32, address: SocketAddr) -> Self {
        let script = Arc::new(Script::default());
        let (stop, stopped) = oneshot::channel();
        let (bound, address_of) = std_mpsc::channel();
        let (state, served): (PathBuf, _) = (state.0.clone(), Arc::clone(&script));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let node = NodeIdentity::load_or_create(&state, Role::Transceiver(TransceiverId(id))).unwrap();
                let endpoint = Endpoint::server(&node, address).unwrap();
                bound.send(endpoint.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = serve(&endpoint, served) => {}
                    _ = stopped => {}
                }
                endpoint.close();
                let _ = tokio::time::timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
            });
        });
        Self { address: address_of.recv().unwrap(), script, stop: Some(stop), thread: Some(thread) }
    }

    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn serve(endpoint: &Endpoint, script: Arc<Script>) {
    let (streams, incoming) = mpsc::channel(8);
    tokio::spawn(link::grpc::serve(Service(Arc::clone(&script)), ReceiverStream::new(incoming)));
    while let Some(link) = endpoint.accept().await {
        let utterances = Arc::new(tokio::sync::Mutex::new(HashMap::new()));
        tokio::spawn(mirror_media(link.clone(), Arc::clone(&utterances)));
        let (streams, script) = (streams.clone(), Arc::clone(&script));
        tokio::spawn(async move {
            while let Ok(incoming) = link.accept().await {
                match incoming {
                    Incoming::Control(stream) => streams.send(stream).await.unwrap(),
                    Incoming::Session(header, tx, rx) => {
                        let SessionHeader { epoch, slot, .. } = header;
                        let header =
                            UtteranceHeader { slot, epoch, utterance: 1, item: "item".to_owned(), first_sample: 0 };
                        for datagram in script.garbage.lock().unwrap().drain(..) {
                            link.send_datagram(datagram.into());
                        }
                        let utterance = link.open_utterance(&header).await.unwrap();
                        utterances.lock().await.insert(slot, utterance);
                        tokio::spawn(mirror_messages(tx, rx, Arc::clone(&script)));
                    }
                    Incoming::Utterance(..) => panic!("edges open no utterances"),
                }
            }
        });
    }
}

async fn mirror_media(link: Link, utterances: Arc<tokio::sync::Mutex<HashMap<u32, UtteranceTx>>>) {
    while let Ok(datagram) = link.read_datagram().await {
        let Ok(Batch::MediaUp { frames, .. }) = parse(&datagram) else { continue };
        for frame in frames.map(Result::unwrap) {
            let payload = bytes::Bytes::copy_from_slice(frame.payload);
            if let Some(utterance) = utterances.lock().await.get_mut(&frame.slot.0) {
                let _ = utterance.send(&UtteranceFrame { samples: 960, payload }).await;
            }
        }
    }
}

async fn mirror_messages(mut tx: SessionTx<TransceiverMessage>, mut rx: SessionRx<EdgeMessage>, script: Arc<Script>) {
    while let Ok(Some(EdgeMessage { kind })) = rx.recv().await {
        match kind {
            Some(edge_message::Kind::ChannelMessage(ChannelMessage { channel, binary, data })) => {
                let message = ChannelMessage { channel, binary, data };
                let kind = Some(transceiver_message::Kind::ChannelMessage(message));
                tx.send(&TransceiverMessage { kind }).await.unwrap();
            }
            Some(edge_message::Kind::Closed(closed)) => script.closed.lock().unwrap().push(closed.reason),
            _ => {}
        }
    }
}

fn start(state: &StateDir, mirrors: &[&Mirror]) -> Edge {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let transceiver = |(mirror, id): (&&Mirror, u32)| TransceiverConfig { id, address: mirror.address };
    let config = Config {
        workers: 2,
        media_bind: any,
        http_bind: any,
        admin_bind: any,
        default_model: "mirror".to_owned(),
        models: [("mirror".to_owned(), "mirror".to_owned())].into(),
        transceivers: mirrors.iter().zip(1..).map(transceiver).collect(),
        state_dir: state.0.clone(),
        drain_timeout_ms: 200,
        ..Config::default()
    };
    let edge = Edge::start(config, metrics()).unwrap();
    eventually("ready", || edge.lifecycle().readiness().is_ok());
    edge
}

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn echo_message(caller: &mut Caller) {
    caller.until("an open channel", |client| client.channel.is_some());
    caller.client.say("over the link");
    caller.until("the message back", |client| client.messages.last().is_some_and(|m| m == "over the link"));
}

#[test]
fn messages_and_audio_go_over_the_link_and_back() {
    let state = StateDir::new("link");
    let mirror = Mirror::start(&state, 1, any());
    let edge = start(&state, &[&mirror]);
    let mut caller = Caller::dial(&edge, "mirror");
    echo_message(&mut caller);
    for n in 0..50 {
        caller.client.speak(Instant::now(), &[0xfc, n]);
        let next = Instant::now() + Duration::from_millis(20);
        while Instant::now() < next {
            caller.turn();
        }
    }
    caller.until("audio back", |client| client.heard.len() >= 45);
    eventually("streams counted", || {
        metric(&edge, "fronthaul_edge_session_streams") == 1.0
            && metric(&edge, "fronthaul_edge_utterance_streams") == 1.0
            && metric(&edge, "fronthaul_edge_seats_used") == 1.0
    });

    assert_eq!(ureq::delete(format!("{}{}", caller.url, caller.location)).call().unwrap().status(), 200);
    eventually("the transceiver told", || {
        *mirror.script.closed.lock().unwrap() == ["hang_up"] && mirror.script.released.lock().unwrap().len() == 1
    });
    eventually("nothing left", || {
        ["sessions", "paths", "session_streams", "seats_used", "pending_sessions"]
            .iter()
            .all(|gauge| metric(&edge, &format!("fronthaul_edge_{gauge}")) == 0.0)
    });
    edge.drain();
    edge.wait().unwrap();
}

#[test]
fn datagrams_of_a_transceiver_that_are_no_frames_are_counted() {
    let state = StateDir::new("garbage");
    let mirror = Mirror::start(&state, 1, any());
    let frame = MediaUp {
        slot: Slot(77),
        epoch: 1,
        codec: Codec::Opus,
        marker: false,
        seq: 1,
        rtp_timestamp: 0,
        audio_level: None,
        age_us: 0,
        payload: &[7; 20],
    };
    let batch = |mut writer: BatchWriter| {
        assert!(writer.push_frame(&frame));
        writer.take(0).to_vec()
    };
    let whole = batch(BatchWriter::media_down());
    // No version, one cut short, one of the other direction; and one that can be read.
    let bad = [vec![0xff; 9], whole[..whole.len() - 1].to_vec(), batch(BatchWriter::media_up())];
    mirror.script.garbage.lock().unwrap().extend(bad.into_iter().chain([whole]));
    let edge = start(&state, &[&mirror]);
    let counter = "fronthaul_edge_discards_total{reason=\"link_malformed\"}";
    eventually("published", || admin(&edge, "/metrics").1.contains(counter));
    let before = metric(&edge, counter);
    let mut caller = Caller::dial(&edge, "mirror");
    echo_message(&mut caller);
    eventually("three counted", || metric(&edge, counter) >= before + 3.0);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(metric(&edge, counter), before + 3.0);
}

#[test]
fn a_call_that_one_transceiver_refuses_is_taken_by_the_next() {
    let state = StateDir::new("next");
    let (first, second) = (Mirror::start(&state, 1, any()), Mirror::start(&state, 2, any()));
    // With equal room the lower id is asked first.
    first.script.refuses.store(true, Ordering::Relaxed);
    let edge = start(&state, &[&first, &second]);
    eventually("both leases", || {
        metric(&edge, "fronthaul_edge_seats_leased{transceiver=\"1\"}") == 2.0
            && metric(&edge, "fronthaul_edge_seats_leased{transceiver=\"2\"}") == 2.0
    });
    let mut caller = Caller::dial(&edge, "mirror");
    echo_message(&mut caller);
    let opened = second.script.opened.lock().unwrap().clone();
    assert_eq!(opened.iter().map(|(_, epoch)| *epoch).collect::<Vec<_>>(), [2]);
    assert!(first.script.opened.lock().unwrap().is_empty());
    edge.drain();
    edge.wait().unwrap();
    assert_eq!(*second.script.closed.lock().unwrap(), ["draining"]);
}

#[test]
fn a_lost_transceiver_ends_its_calls_and_is_used_again_when_it_returns() {
    let state = StateDir::new("lost");
    let mut mirror = Mirror::start(&state, 1, any());
    let address = mirror.address;
    let edge = start(&state, &[&mirror]);
    let mut caller = Caller::dial(&edge, "mirror");
    echo_message(&mut caller);

    mirror.stop();
    caller.until("the error event", |client| client.messages.last().is_some_and(|m| m.contains("transceiver_lost")));
    let url = format!("{}/v1/realtime/calls", caller.url);
    let offer = Client::new(Instant::now(), "127.0.0.1:9".parse().unwrap()).offer();
    eventually("no seat", || agent().post(&url).content_type("application/sdp").send(&offer).unwrap().status() == 503);
    eventually("not ready", || edge.lifecycle().readiness().is_err());

    let _returned = Mirror::start(&state, 1, address);
    eventually("ready again", || edge.lifecycle().readiness().is_ok());
    let mut caller = Caller::dial(&edge, "mirror");
    echo_message(&mut caller);
    edge.drain();
    edge.wait().unwrap();
}
