//! `/v1/realtime` over real sockets: a whole edge, a transceiver that the test plays, and clients by hand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall say where")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use common::live::{Caller, StateDir, agent, eventually, metric, metrics};
use edge::config::{AuthConfig, KeyConfig, Secret};
use edge::{Config, Edge, TransceiverConfig};
use link::identity::{NodeIdentity, Role};
use link::ids::TransceiverId;
use link::proto::transceiver_server::Transceiver;
use link::proto::{
    ChannelMessage, Close, EdgeMessage, HelloRequest, HelloResponse, LeaseGrant, LeaseRequest, OpenRequest,
    OpenResponse, ReleaseRequest, ReleaseResponse, SessionHeader, TransceiverMessage, Transport, edge_message,
    transceiver_message,
};
use link::quic::{Endpoint, Incoming, SessionRx, SessionTx};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tokio_tungstenite::tungstenite::protocol::{Role as Side, WebSocket};
use tokio_tungstenite::tungstenite::{Error, Message};
use tonic::{Request, Response, Status};

/// What the transceiver was told.
#[derive(Default)]
struct Told {
    opened: Mutex<Vec<OpenRequest>>,
    released: Mutex<Vec<u64>>,
    attached: Mutex<Vec<SessionHeader>>,
    /// It takes no session.
    refuses: AtomicBool,
}

struct Service(Arc<Told>);

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
            while grants.send(LeaseGrant { seats: 8, draining: false }).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream).map(Ok))))
    }

    async fn open(&self, request: Request<OpenRequest>) -> Result<Response<OpenResponse>, Status> {
        if self.0.refuses.load(Ordering::Relaxed) {
            return Err(Status::resource_exhausted("full"));
        }
        let mut opened = self.0.opened.lock().unwrap();
        opened.push(request.into_inner());
        Ok(Response::new(OpenResponse { slot: u32::try_from(opened.len()).unwrap() }))
    }

    async fn release(&self, request: Request<ReleaseRequest>) -> Result<Response<ReleaseResponse>, Status> {
        self.0.released.lock().unwrap().push(request.into_inner().session);
        Ok(Response::new(ReleaseResponse {}))
    }
}

/// Returns each message; "close CODE" ends the session, "flood N" sends N mebibytes.
async fn mirror(mut tx: SessionTx<TransceiverMessage>, mut rx: SessionRx<EdgeMessage>, prefix: &'static str) {
    let say = |channel: u32, text: String| {
        let message = ChannelMessage { channel, binary: false, data: text.into_bytes() };
        TransceiverMessage { kind: Some(transceiver_message::Kind::ChannelMessage(message)) }
    };
    while let Ok(Some(EdgeMessage { kind })) = rx.recv().await {
        let (channel, text) = match kind {
            Some(edge_message::Kind::ChannelOpened(opened)) => (opened.channel, opened.label),
            Some(edge_message::Kind::ChannelMessage(message)) => {
                (message.channel, String::from_utf8(message.data).unwrap())
            }
            _ => continue,
        };
        if let Some(code) = text.strip_prefix("close ") {
            let close = Close { reason: "as asked".to_owned(), code: code.parse().unwrap() };
            tx.send(&TransceiverMessage { kind: Some(transceiver_message::Kind::Close(close)) }).await.unwrap();
        } else if let Some(count) = text.strip_prefix("flood ") {
            for _ in 0..count.parse().unwrap() {
                if tx.send(&say(channel, "x".repeat((1 << 20) - 100))).await.is_err() {
                    return;
                }
            }
        } else if tx.send(&say(channel, format!("{prefix}{text}"))).await.is_err() {
            return;
        }
    }
}

struct Mirror {
    address: SocketAddr,
    told: Arc<Told>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Mirror {
    fn start(state: &StateDir) -> Self {
        let told = Arc::new(Told::default());
        let (stop, stopped) = oneshot::channel();
        let (bound, address_of) = std_mpsc::channel();
        let (state, shared): (PathBuf, _) = (state.0.clone(), Arc::clone(&told));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let node = NodeIdentity::load_or_create(&state, Role::Transceiver(TransceiverId(1))).unwrap();
                let endpoint = Endpoint::server(&node, "127.0.0.1:0".parse().unwrap()).unwrap();
                bound.send(endpoint.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = serve(&endpoint, shared) => {}
                    _ = stopped => {}
                }
                endpoint.close();
                let _ = tokio::time::timeout(Duration::from_millis(200), endpoint.wait_idle()).await;
            });
        });
        Self { address: address_of.recv().unwrap(), told, stop: Some(stop), thread: Some(thread) }
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

async fn serve(endpoint: &Endpoint, told: Arc<Told>) {
    let (streams, incoming) = mpsc::channel(8);
    tokio::spawn(link::grpc::serve(Service(Arc::clone(&told)), ReceiverStream::new(incoming)));
    while let Some(link) = endpoint.accept().await {
        let (streams, told) = (streams.clone(), Arc::clone(&told));
        let heartbeats = link.clone();
        tokio::spawn(async move { while heartbeats.read_datagram().await.is_ok() {} });
        tokio::spawn(async move {
            while let Ok(incoming) = link.accept().await {
                match incoming {
                    Incoming::Control(stream) => streams.send(stream).await.unwrap(),
                    Incoming::Session(header, tx, rx) => {
                        let prefix = if header.attach { "beside: " } else { "" };
                        if header.attach {
                            told.attached.lock().unwrap().push(header);
                        }
                        tokio::spawn(mirror(tx, rx, prefix));
                    }
                    Incoming::Utterance(..) => panic!("edges open no utterances"),
                }
            }
        });
    }
}

struct Rig {
    edge: Option<Edge>,
    mirror: Mirror,
    _state: StateDir,
}

impl Rig {
    fn start(name: &str, change: impl FnOnce(&mut Config)) -> Self {
        let state = StateDir::new(&format!("websocket-{name}"));
        let mirror = Mirror::start(&state);
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let mut config = Config {
            workers: 1,
            media_bind: any,
            http_bind: any,
            admin_bind: any,
            default_model: "mirror".to_owned(),
            models: ["mirror", "echo"].map(|name| (name.to_owned(), name.to_owned())).into(),
            transceivers: vec![TransceiverConfig { id: 1, address: mirror.address }],
            state_dir: state.0.clone(),
            drain_timeout_ms: 100,
            ..Config::default()
        };
        change(&mut config);
        let edge = Edge::start(config, metrics()).unwrap();
        eventually("ready", || edge.lifecycle().readiness().is_ok());
        Self { edge: Some(edge), mirror, _state: state }
    }

    fn edge(&self) -> &Edge {
        self.edge.as_ref().unwrap()
    }

    /// Asks for a WebSocket; the head of the answer, and the connection.
    fn ask(&self, target: &str, headers: &[&str]) -> (String, TcpStream) {
        let mut stream = TcpStream::connect(self.edge().http_addr()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let more: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        (String::from_utf8(head).unwrap().to_ascii_lowercase(), stream)
    }

    fn join(&self, target: &str, headers: &[&str]) -> Client {
        let (head, stream) = self.ask(target, headers);
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        Client(WebSocket::from_raw_socket(stream, Side::Client, None))
    }

    /// The status of what is refused, and `error.code`.
    fn refused(&self, target: &str, headers: &[&str]) -> (String, String) {
        let (head, mut stream) = self.ask(target, headers);
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        let mut body = vec![0; length.unwrap_or_else(|| panic!("{head}")).parse().unwrap()];
        stream.read_exact(&mut body).unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let status = head.split(' ').nth(1).unwrap().to_owned();
        (status, body["error"]["code"].as_str().unwrap().to_owned())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(edge) = self.edge.take() {
            edge.drain();
            edge.wait().unwrap();
        }
    }
}

struct Client(WebSocket<TcpStream>);

impl Client {
    fn say(&mut self, text: &str) {
        self.0.send(Message::text(text)).unwrap();
    }

    fn hear(&mut self) -> String {
        loop {
            match self.0.read().unwrap() {
                Message::Text(text) => return text.to_string(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Texts until the close, and its code and reason.
    fn rest(&mut self) -> (Vec<String>, u16, String) {
        let mut texts = Vec::new();
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => texts.push(text.to_string()),
                Ok(Message::Close(Some(frame))) => return (texts, frame.code.into(), frame.reason.to_string()),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("{other:?} after {texts:?}"),
            }
        }
    }
}

fn closed(rig: &Rig, reason: &str) -> f64 {
    metric(rig.edge(), &format!("fronthaul_edge_websockets_closed_total{{reason=\"{reason}\"}}"))
}

#[test]
fn events_go_both_ways_in_order_until_the_client_closes_and_its_seat_is_free() {
    let rig = Rig::start("order", |_| {});
    let mut client = rig.join("/v1/realtime?model=mirror", &[]);
    assert_eq!(client.hear(), "oai-events");
    for n in 0..100 {
        client.say(&format!("event {n}"));
    }
    for n in 0..100 {
        assert_eq!(client.hear(), format!("event {n}"));
    }
    let opened = rig.mirror.told.opened.lock().unwrap()[0].clone();
    assert_eq!((opened.transport(), opened.model.as_str(), opened.epoch), (Transport::Websocket, "mirror", 1));
    eventually("counted", || metric(rig.edge(), "fronthaul_edge_websockets") == 1.0);
    let before = closed(&rig, "client");
    client.0.close(None).unwrap();
    while client.0.read().is_ok() {}
    eventually("released", || *rig.mirror.told.released.lock().unwrap() == [opened.session]);
    eventually("nothing left", || {
        ["websockets", "websocket_queued_bytes", "seats_used"]
            .iter()
            .all(|gauge| metric(rig.edge(), &format!("fronthaul_edge_{gauge}")) == 0.0)
    });
    assert_eq!(closed(&rig, "client"), before + 1.0);
}

#[test]
fn the_subprotocol_is_answered_when_it_is_offered_and_nothing_else_ever_is() {
    let rig = Rig::start("subprotocol", |_| {});
    let offered = "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.secret, openai-agents-sdk.0.20.0";
    let (head, _stream) = rig.ask("/v1/realtime?model=mirror", &[offered]);
    assert!(head.contains("\r\nsec-websocket-protocol: realtime\r\n"), "{head}");
    assert!(head.contains("\r\nsec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
    assert!(!head.contains("secret") && !head.contains("deflate"), "{head}");
    let (head, _stream) = rig.ask("/v1/realtime?model=mirror", &[]);
    assert!(head.starts_with("http/1.1 101 ") && !head.contains("sec-websocket-protocol"), "{head}");
}

#[test]
fn compression_is_agreed_on_when_it_is_offered_without_a_context_that_either_side_keeps() {
    let rig = Rig::start("deflate", |_| {});
    let answer = "\r\nsec-websocket-extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                  server_max_window_bits=12\r\n";
    for (offer, agreed) in [
        ("Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits", true),
        ("Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=9", false),
        ("X: y", false),
    ] {
        let (head, _stream) = rig.ask("/v1/realtime?model=mirror", &[offer]);
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        assert_eq!((head.contains(answer), head.contains("extensions")), (agreed, agreed), "{offer}: {head}");
    }
}

#[test]
fn each_form_of_a_key_lets_in_and_its_limits_hold() {
    let rig = Rig::start("keys", |config| {
        config.auth = AuthConfig {
            keys: vec![KeyConfig {
                id: "app".to_owned(),
                key: Secret::new("good-good-good-good"),
                tenant: 7,
                max_seconds: 900,
                max_concurrent: 1,
                models: vec!["mirror".to_owned()],
                sha256: String::new(),
            }],
            ..AuthConfig::default()
        };
    });
    let target = "/v1/realtime?model=mirror";
    for (target, header) in [
        (target, "Authorization: Bearer good-good-good-good"),
        (target, "api-key: good-good-good-good"),
        (target, "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.good-good-good-good"),
        ("/openai/v1/realtime?model=mirror", "api-key: good-good-good-good"),
        ("/openai/realtime?api-version=1&deployment=mirror", "api-key: good-good-good-good"),
    ] {
        eventually("room for one more", || {
            let mut client = match rig.ask(target, &[header]) {
                (head, stream) if head.starts_with("http/1.1 101 ") => {
                    Client(WebSocket::from_raw_socket(stream, Side::Client, None))
                }
                (head, _) => {
                    assert!(head.starts_with("http/1.1 429 "), "{header}: {head}");
                    return false;
                }
            };
            assert_eq!(client.hear(), "oai-events", "{header}");
            let limit = rig.refused(target, &[header]);
            assert_eq!(limit, ("429".to_owned(), "too_many_concurrent".to_owned()));
            true
        });
    }
    let opened = rig.mirror.told.opened.lock().unwrap()[0].clone();
    assert_eq!((opened.tenant, opened.max_seconds), (7, 900));
    for (header, refusal) in
        [("X: y", ("401", "invalid_api_key")), ("Authorization: Bearer bad", ("401", "invalid_api_key"))]
    {
        let refused = rig.refused(target, &[header]);
        assert_eq!((refused.0.as_str(), refused.1.as_str()), refusal, "{header}");
    }
    let refused = rig.refused("/v1/realtime?model=echo", &["Authorization: Bearer good-good-good-good"]);
    assert_eq!(refused, ("403".to_owned(), "model_not_allowed".to_owned()));
}

#[test]
fn an_ephemeral_keys_session_is_what_the_transceiver_is_asked_for() {
    let rig = Rig::start("ephemeral", |_| {});
    let url = format!("http://{}/v1/realtime/client_secrets", rig.edge().http_addr());
    let body = r#"{"session":{"type":"realtime","model":"mirror","instructions":"Be brief."}}"#;
    let mut made = agent().post(&url).content_type("application/json").send(body).unwrap();
    let made: serde_json::Value = serde_json::from_str(&made.body_mut().read_to_string().unwrap()).unwrap();
    let key = made["value"].as_str().unwrap();
    let protocols = format!("Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.{key}");
    let mut client = rig.join("/v1/realtime?model=gpt-realtime", &[&protocols]);
    client.hear();
    let opened = rig.mirror.told.opened.lock().unwrap()[0].clone();
    assert_eq!(opened.model, "mirror");
    assert!(opened.session_config.contains("Be brief."), "{}", opened.session_config);
}

#[test]
fn an_ephemeral_key_says_by_itself_what_its_session_is_and_against_the_query() {
    let rig = Rig::start("said", |config| {
        config.models.insert("other".to_owned(), "mirror".to_owned());
    });
    let url = format!("http://{}/v1/realtime/client_secrets", rig.edge().http_addr());
    let key = |session: &str| {
        let body = format!(r#"{{"session":{session}}}"#);
        let mut made = agent().post(&url).content_type("application/json").send(&body).unwrap();
        let made: serde_json::Value = serde_json::from_str(&made.body_mut().read_to_string().unwrap()).unwrap();
        format!("Authorization: Bearer {}", made["value"].as_str().unwrap())
    };
    let mirrored = key(r#"{"model":"mirror"}"#);
    for target in
        ["/v1/realtime", "/v1/realtime?model=echo", "/v1/realtime?model=unknown", "/openai/realtime?api-version=1"]
    {
        assert_eq!(rig.join(target, &[&mirrored]).hear(), "oai-events", "the mirror's first word: {target}");
    }
    assert_eq!(rig.join("/v1/realtime", &[&key("{}")]).hear(), "oai-events", "the default model");
    let opened = rig.mirror.told.opened.lock().unwrap().len();
    assert_eq!(opened, 5);
    let transcribes = key(r#"{"type":"transcription"}"#);
    for target in ["/v1/realtime", "/v1/realtime?intent=transcription", "/v1/realtime?model=mirror"] {
        rig.join(target, &[&transcribes]).hear();
        let config = rig.mirror.told.opened.lock().unwrap().last().unwrap().session_config.clone();
        assert!(config.contains("transcription"), "{target}: {config}");
    }
    let converses = key(r#"{"type":"realtime"}"#);
    let refused = rig.refused("/v1/realtime?intent=transcription", &[&converses]);
    assert_eq!(refused, ("400".to_owned(), "invalid_query".to_owned()));
    assert_eq!(rig.refused("/v1/realtime", &[]), ("400".to_owned(), "invalid_query".to_owned()));
}

#[test]
fn what_cannot_be_served_is_refused_before_the_upgrade() {
    let rig = Rig::start("refused", |_| {});
    for (target, refusal) in [
        ("/v1/realtime", ("400", "invalid_query")),
        ("/v1/realtime?model=a&call_id=b", ("400", "invalid_query")),
        ("/v1/realtime?intent=dance", ("400", "invalid_query")),
        ("/v1/realtime?call_id=rtc_0123456789abcdef", ("404", "call_id_not_found")),
        ("/v1/realtime?call_id=nothing", ("404", "call_id_not_found")),
    ] {
        let refused = rig.refused(target, &[]);
        assert_eq!((refused.0.as_str(), refused.1.as_str()), refusal, "{target}");
    }
    let url = format!("http://{}/v1/realtime?model=mirror", rig.edge().http_addr());
    assert_eq!(agent().get(&url).call().unwrap().status(), 426);
    assert_eq!(rig.mirror.told.opened.lock().unwrap().len(), 0);
}

#[test]
fn codes_of_the_transceiver_reach_the_client_behind_its_last_events() {
    let rig = Rig::start("codes", |_| {});
    for code in [1001_u16, 4000] {
        let mut client = rig.join("/v1/realtime?model=mirror", &[]);
        client.say("one");
        client.say(&format!("close {code}"));
        let (texts, got, reason) = client.rest();
        assert_eq!((texts, got, reason.as_str()), (vec!["oai-events".to_owned(), "one".to_owned()], code, "as asked"));
    }
}

#[test]
fn the_betas_dialect_is_answered_with_its_error_and_4000() {
    let rig = Rig::start("beta", |_| {});
    for header in ["OpenAI-Beta: realtime=v1", "Sec-WebSocket-Protocol: realtime, openai-beta.realtime-v1"] {
        let mut client = rig.join("/v1/realtime?model=mirror", &[header]);
        let (texts, code, reason) = client.rest();
        assert!(texts[0].contains("\"beta_api_shape_disabled\""), "{texts:?}");
        assert_eq!((code, reason.as_str()), (4000, "invalid_request_error.beta_api_shape_disabled"));
    }
    assert_eq!(rig.mirror.told.opened.lock().unwrap().len(), 0);
}

#[test]
fn a_message_that_is_too_large_is_answered_with_an_event_and_1009() {
    let rig = Rig::start("large", |_| {});
    let mut client = rig.join("/v1/realtime?model=mirror", &[]);
    client.say(&"x".repeat(1_000_000));
    assert_eq!(client.hear(), "oai-events");
    assert_eq!(client.hear().len(), 1_000_000);
    client.say(&"x".repeat((1 << 20) + 1));
    let (texts, code, _) = client.rest();
    assert!(texts[0].contains("message_too_large"), "{texts:?}");
    assert_eq!(code, 1009);
}

#[test]
fn a_client_that_does_not_read_is_closed_as_a_slow_reader() {
    let rig = Rig::start("slow", |_| {});
    let before = closed(&rig, "slow_reader");
    let mut client = rig.join("/v1/realtime?model=mirror", &[]);
    // More than sockets, streams and the outbox hold together.
    client.say("flood 48");
    eventually("closed", || closed(&rig, "slow_reader") == before + 1.0);
    eventually("nothing queued", || metric(rig.edge(), "fronthaul_edge_websocket_queued_bytes") == 0.0);
    let ended = loop {
        match client.0.read() {
            Ok(Message::Close(frame)) => break frame.map_or(0, |frame| frame.code.into()),
            Ok(_) => {}
            Err(Error::Io(_) | Error::Protocol(_) | Error::ConnectionClosed | Error::AlreadyClosed) => break 0,
            Err(error) => panic!("{error:?}"),
        }
    };
    // Told, if the sockets had room for it.
    assert!([0_u16, 1008].contains(&ended), "{ended}");
}

#[test]
fn an_edge_that_stops_tells_its_clients_to_come_again() {
    let mut rig = Rig::start("drain", |_| {});
    let mut client = rig.join("/v1/realtime?model=mirror", &[]);
    client.hear();
    let edge = rig.edge.take().unwrap();
    edge.drain();
    let (_, code, reason) = client.rest();
    assert_eq!((code, reason.as_str()), (1012, "draining"));
    edge.wait().unwrap();
}

#[test]
fn a_lost_transceiver_is_told_with_an_event_and_1011() {
    let mut rig = Rig::start("lost", |_| {});
    let mut client = rig.join("/v1/realtime?model=mirror", &[]);
    client.hear();
    rig.mirror.stop();
    let (texts, code, _) = client.rest();
    assert!(texts[0].contains("transceiver_lost"), "{texts:?}");
    assert_eq!(code, 1011);
}

#[test]
fn a_session_that_no_transceiver_takes_is_told_with_an_event_and_1013() {
    let rig = Rig::start("full", |_| {});
    rig.mirror.told.refuses.store(true, Ordering::Relaxed);
    let mut client = rig.join("/v1/realtime?model=mirror", &[]);
    let (texts, code, reason) = client.rest();
    assert!(texts[0].contains("\"open_failed\""), "{texts:?}");
    assert_eq!((code, reason.as_str()), (1013, "open_failed"));
    eventually("no seat is left taken", || metric(rig.edge(), "fronthaul_edge_seats_used") == 0.0);
}

#[test]
fn frames_that_break_the_protocol_end_the_session_with_1002() {
    let rig = Rig::start("broken", |_| {});
    // Reserved bits, an opcode that is none, a frame without a mask (RFC 6455 §5.1, §5.2).
    for frame in [&[0xF1, 0x80, 0, 0, 0, 0][..], &[0x83, 0x80, 0, 0, 0, 0], &[0x81, 0x01, b'x']] {
        let mut client = rig.join("/v1/realtime?model=mirror", &[]);
        assert_eq!(client.hear(), "oai-events");
        client.0.get_mut().write_all(frame).unwrap();
        let (_, code, reason) = client.rest();
        assert_eq!((code, reason.as_str()), (1002, "protocol_error"), "{frame:?}");
    }
}

#[test]
fn more_websockets_than_may_be_are_refused() {
    let rig = Rig::start("crowd", |config| config.limits.websockets = 1);
    let mut client = rig.join("/v1/realtime?model=mirror", &[]);
    client.hear();
    let refused = rig.refused("/v1/realtime?model=mirror", &[]);
    assert_eq!(refused, ("429".to_owned(), "too_many_websockets".to_owned()));
}

#[test]
fn a_websocket_outlives_the_life_of_an_http_connection() {
    let rig = Rig::start("life", |_| {});
    let mut client = rig.join("/v1/realtime?model=mirror", &[]);
    client.hear();
    // 20 s are given to a connection of HTTP, and 10 more to its last request. Reading answers pings.
    client.0.get_ref().set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    for _ in 0..31 {
        match client.0.read() {
            Ok(Message::Ping(_)) | Err(Error::Io(_)) => {}
            other => panic!("{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    client.0.get_ref().set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.say("still here");
    assert_eq!(client.hear(), "still here");
}

#[test]
fn a_sideband_joins_a_call_that_is_set_up_and_leaves_it_running() {
    let rig = Rig::start("sideband", |_| {});
    let mut caller = Caller::dial(rig.edge(), "mirror");
    let id = caller.location.rsplit('/').next().unwrap().to_owned();
    let target = format!("/v1/realtime?call_id={id}");
    // As early as an app's server can: no check has come.
    let mut sideband = rig.join(&target, &[]);
    caller.until("an open channel", |client| client.channel.is_some());
    sideband.say("update");
    assert_eq!(sideband.hear(), "beside: update");
    let header = rig.mirror.told.attached.lock().unwrap()[0];
    let opened = rig.mirror.told.opened.lock().unwrap()[0].clone();
    assert_eq!((header.session, header.attach, header.tenant), (opened.session, true, opened.tenant));

    sideband.0.close(None).unwrap();
    while sideband.0.read().is_ok() {}
    caller.client.say("over the link");
    caller.until("the call goes on", |client| client.messages.last().is_some_and(|m| m == "over the link"));
    assert!(rig.mirror.told.released.lock().unwrap().is_empty());

    // The transceiver says when the call is over.
    let mut sideband = rig.join(&target, &[]);
    sideband.say("close 1000");
    assert_eq!(sideband.rest().1, 1000);
}

#[test]
fn a_call_that_nobody_takes_ends_its_sideband() {
    let rig = Rig::start("never", |_| {});
    let caller = Caller::dial(rig.edge(), "mirror");
    let id = caller.location.rsplit('/').next().unwrap().to_owned();
    let mut sideband = rig.join(&format!("/v1/realtime?call_id={id}"), &[]);
    assert_eq!(agent().delete(&format!("{}{}", caller.url, caller.location)).call().unwrap().status(), 200);
    let (texts, code, reason) = sideband.rest();
    assert!(texts[0].contains("call_id_not_found"), "{texts:?}");
    assert_eq!((code, reason.as_str()), (1008, "call_id_not_found"));
}
