//! An edge and a transceiver as they are deployed, on loopback sockets, and clients over WebSocket.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod upgrade;

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edge::config::{AuthConfig, KeyConfig, Secret};
use edge::{Config, Edge, TransceiverConfig};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocket;
use transceiver::Transceiver;
use upgrade::upgrade;

const APP: &str = "the-apps-own-key-0001";
const OTHER: &str = "another-tenants-key-2";

struct Daemons {
    edge: Option<Edge>,
    transceiver: Option<Transceiver>,
    state: PathBuf,
}

impl Daemons {
    fn start(name: &str) -> Self {
        static METRICS: OnceLock<daemon::Metrics> = OnceLock::new();
        let metrics = METRICS.get_or_init(|| daemon::Metrics::install().unwrap()).clone();
        let state = std::env::temp_dir().join(format!("fronthaul-e2e-{name}-{}", std::process::id()));
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let transceiver = Transceiver::start(&transceiver::Config {
            link_bind: any,
            state_dir: state.display().to_string(),
            workers: 1,
            seats: 16,
            ..transceiver::Config::default()
        })
        .unwrap();
        let key = |id: &str, key: &str, tenant| KeyConfig {
            id: id.to_owned(),
            key: Secret::new(key),
            tenant,
            max_seconds: 0,
            max_concurrent: 0,
            models: vec![],
            sha256: String::new(),
        };
        let config = Config {
            workers: 1,
            media_bind: any,
            http_bind: any,
            admin_bind: any,
            default_model: "parrot".to_owned(),
            models: [("parrot".to_owned(), "parrot".to_owned())].into(),
            transceivers: vec![TransceiverConfig { id: 1, address: transceiver.link_addr() }],
            auth: AuthConfig { keys: vec![key("app", APP, 1), key("other", OTHER, 2)], ..AuthConfig::default() },
            state_dir: state.clone(),
            drain_timeout_ms: 100,
            ..Config::default()
        };
        let edge = Edge::start(config, metrics).unwrap();
        let daemons = Self { edge: Some(edge), transceiver: Some(transceiver), state };
        daemons.until("ready", |daemons| daemons.edge().lifecycle().readiness().is_ok());
        daemons
    }

    fn edge(&self) -> &Edge {
        self.edge.as_ref().unwrap()
    }

    fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds(self) {
            assert!(Instant::now() < deadline, "not within 20 s: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn metric(&self, name: &str) -> f64 {
        let url = format!("http://{}/metrics", self.edge().admin_addr());
        let text = ureq::get(&url).call().unwrap().body_mut().read_to_string().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    fn post(&self, path: &str, kind: &str, body: &str) -> ureq::http::Response<ureq::Body> {
        let url = format!("http://{}{path}", self.edge().http_addr());
        ureq::post(&url).header("Authorization", format!("Bearer {APP}")).content_type(kind).send(body).unwrap()
    }

    /// An ephemeral key of the app's.
    fn ephemeral(&self, body: &Value) -> String {
        let mut made = self.post("/v1/realtime/client_secrets", "application/json", &body.to_string());
        let made: Value = serde_json::from_str(&made.body_mut().read_to_string().unwrap()).unwrap();
        made["value"].as_str().unwrap().to_owned()
    }

    fn ask(&self, query: &str, key: &str, receive_buffer: Option<usize>) -> Result<Client, (u16, String)> {
        let address = self.edge().http_addr();
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        socket.connect(&address.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        upgrade(stream, query, &format!("Authorization: Bearer {key}\r\n"))
            .map(|socket| Client { socket, events: Vec::new() })
            .map_err(|(status, body)| (status, body["error"]["code"].as_str().unwrap().to_owned()))
    }

    fn join(&self, query: &str, key: &str) -> Client {
        let mut client = self.ask(query, key, None).unwrap_or_else(|refused| panic!("{refused:?}"));
        client.until("session.created");
        client
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        if let Some(edge) = self.edge.take() {
            edge.drain();
            edge.wait().unwrap();
        }
        drop(self.transceiver.take());
        let _ = std::fs::remove_dir_all(&self.state);
    }
}

struct Client {
    socket: WebSocket<TcpStream>,
    /// What came since it was looked at last.
    events: Vec<Value>,
}

impl Client {
    fn send(&mut self, event: &Value) {
        self.socket.send(Message::text(event.to_string())).unwrap();
    }

    /// The next event of this type; those before it are kept.
    fn until(&mut self, kind: &str) -> Value {
        loop {
            match self.socket.read().unwrap() {
                Message::Text(text) => {
                    let event: Value = serde_json::from_str(&text).unwrap();
                    self.events.push(event.clone());
                    if event["type"] == kind {
                        return event;
                    }
                }
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?} instead of {kind} behind {:?}", self.events),
            }
        }
    }

    /// Code of the next error and the event that caused it.
    fn error(&mut self) -> (String, Value) {
        let error = self.until("error")["error"].clone();
        (error["code"].as_str().unwrap_or_default().to_owned(), error["event_id"].clone())
    }

    /// Code and reason of the close, whatever comes before.
    fn closed(&mut self) -> (u16, String) {
        loop {
            match self.socket.read() {
                Ok(Message::Close(Some(frame))) => return (frame.code.into(), frame.reason.to_string()),
                Ok(Message::Text(text)) => self.events.push(serde_json::from_str(&text).unwrap()),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("{other:?} behind {:?}", self.events.last()),
            }
        }
    }

    fn append(&mut self, pcm: &[i16]) {
        let data: Vec<u8> = pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        self.send(&json!({ "type": "input_audio_buffer.append", "audio": STANDARD.encode(data) }));
    }

    /// Says something, and is answered by the parrot: what it said.
    fn converse(&mut self) -> Vec<i16> {
        self.events.clear();
        for piece in question().chunks(2400) {
            self.append(piece);
        }
        let done = self.until("response.done");
        assert_eq!(done["response"]["status"], "completed");
        let deltas = self.events.iter().filter(|event| event["type"] == "response.output_audio.delta");
        let data = deltas.flat_map(|event| STANDARD.decode(event["delta"].as_str().unwrap()).unwrap());
        data.collect::<Vec<u8>>().as_chunks().0.iter().map(|pair| i16::from_le_bytes(*pair)).collect()
    }
}

/// Silence, 1.4 s of speech, silence enough to end a turn; 24 kHz.
fn question() -> Vec<i16> {
    [vec![0; 600 * 24], voice::babble::speech(24_000, 1400, 1), vec![0; 1500 * 24]].concat()
}

/// Best correlation of every seventh sample with a second of what was asked, at the lags of 400 ms.
fn alike(said: &[i16]) -> f64 {
    let asked = &question()[700 * 24..1700 * 24];
    let energy = |pcm: &[i16]| pcm.iter().step_by(7).map(|&x| f64::from(x).powi(2)).sum::<f64>();
    let one = |part: &[i16]| {
        let dot: f64 = part.iter().zip(asked).step_by(7).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum();
        dot / (energy(part) * energy(asked)).sqrt().max(1.0)
    };
    said.windows(asked.len()).take(9600).map(one).fold(0.0, f64::max)
}

#[test]
fn a_spoken_question_is_answered_and_events_go_both_ways() {
    let daemons = Daemons::start("turn");
    let mut client = daemons.join("?model=parrot", APP);
    client.send(&json!({ "type": "session.update", "session": { "type": "realtime", "instructions": "Repeat." } }));
    assert_eq!(client.until("session.updated")["session"]["instructions"], "Repeat.");
    let likeness = alike(&client.converse());
    assert!(likeness > 0.9, "{likeness}");
    let kinds: Vec<&str> = client.events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let at = |kind: &str| kinds.iter().position(|one| *one == kind).unwrap_or_else(|| panic!("{kind} of {kinds:?}"));
    assert!(at("input_audio_buffer.speech_started") < at("input_audio_buffer.committed"));
    assert!(at("input_audio_buffer.committed") < at("response.created"));
    assert!(at("response.created") < at("response.output_audio.delta"));

    let item = json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Hello" }] });
    client.send(&json!({ "type": "conversation.item.create", "item": item }));
    assert_eq!(client.until("conversation.item.done")["item"]["content"][0]["text"], "Hello");
    client.socket.close(None).unwrap();
    daemons.until("its seat is free", |daemons| daemons.metric("fronthaul_edge_seats_used") == 0.0);
}

#[test]
fn what_makes_no_sense_is_an_error_each_and_the_session_and_its_neighbor_go_on() {
    let daemons = Daemons::start("nonsense");
    let (mut client, mut neighbor) = (daemons.join("?model=parrot", APP), daemons.join("?model=parrot", OTHER));
    for (text, code, id) in [
        ("{".to_owned(), "invalid_event", Value::Null),
        ("[]".to_owned(), "invalid_event", Value::Null),
        (json!({ "type": "no.such.event", "event_id": "e1" }).to_string(), "unknown_event", json!("e1")),
        (json!({ "type": "input_audio_buffer.append", "event_id": "e2" }).to_string(), "missing_required_parameter", json!("e2")),
        // Half a sample, and what is no base64.
        (json!({ "type": "input_audio_buffer.append", "event_id": "e3", "audio": "AAAA" }).to_string(), "invalid_value", json!("e3")),
        (json!({ "type": "input_audio_buffer.append", "event_id": "e4", "audio": "%" }).to_string(), "invalid_value", json!("e4")),
        (json!({ "type": "input_audio_buffer.commit", "event_id": "e5" }).to_string(), "input_audio_buffer_commit_empty", json!("e5")),
        (json!({ "type": "session.update", "event_id": "e6", "session": { "type": "realtime", "output_modalities": 7 } }).to_string(), "invalid_value", json!("e6")),
    ] {
        client.socket.send(Message::text(text.clone())).unwrap();
        assert_eq!(client.error(), (code.to_owned(), id), "{text}");
    }
    client.socket.send(Message::binary(vec![0; 100])).unwrap();
    assert_eq!(client.error().0, "invalid_event");
    // Of the size that is just taken, and in which nothing is.
    client.socket.send(Message::text(format!("\"{}\"", "x".repeat(1_000_000)))).unwrap();
    assert_eq!(client.error().0, "invalid_event");
    client.send(&json!({ "type": "session.update", "session": { "type": "realtime", "mine": [1] } }));
    assert_eq!(client.until("session.updated")["session"]["mine"], json!([1]), "unknown fields are kept");
    assert!(alike(&client.converse()) > 0.9);

    client.socket.send(Message::text("x".repeat(1 << 20))).unwrap();
    let (code, reason) = client.closed();
    assert_eq!((code, reason.as_str()), (1009, "message_too_large"));
    assert_eq!(client.events.last().unwrap()["error"]["code"], "message_too_large");
    assert!(alike(&neighbor.converse()) > 0.9);
}

#[test]
fn who_floods_is_told_so_and_closed_and_the_neighbor_is_answered_meanwhile() {
    let daemons = Daemons::start("flood");
    let (mut client, mut neighbor) = (daemons.join("?model=parrot", APP), daemons.join("?model=parrot", OTHER));
    let flooding = std::thread::spawn(move || {
        let update =
            json!({ "type": "session.update", "session": { "type": "realtime", "instructions": "x" } }).to_string();
        let mut refused = None;
        // More than are taken at once and refused in all.
        for _ in 0..12_000 {
            if client.socket.send(Message::text(update.clone())).is_err() {
                break;
            }
        }
        let close = loop {
            match client.socket.read() {
                Ok(Message::Text(text)) if text.contains("rate_limit_exceeded") => refused = Some(text),
                Ok(Message::Close(frame)) => break frame.map(|frame| u16::from(frame.code)),
                Ok(_) => {}
                Err(error) => panic!("{error} behind {refused:?}"),
            }
        };
        (refused.is_some(), close)
    });
    assert!(alike(&neighbor.converse()) > 0.9);
    assert_eq!(flooding.join().unwrap(), (true, Some(1008)));
    assert!(alike(&neighbor.converse()) > 0.9);
}

#[test]
fn a_client_that_does_not_read_costs_a_bounded_amount_and_is_closed() {
    let daemons = Daemons::start("slow");
    let mut client = daemons.ask("?model=parrot", APP, Some(32 << 10)).unwrap();
    let content = json!([{ "type": "input_text", "text": "x".repeat(100_000) }]);
    let item = json!({ "id": "item_1", "type": "message", "role": "user", "content": content });
    let create = json!({ "type": "conversation.item.create", "item": item }).to_string();
    let delete = json!({ "type": "conversation.item.delete", "item_id": "item_1" }).to_string();
    let (mut most, closed) = (0.0_f64, "fronthaul_edge_websockets_closed_total{reason=\"slow_reader\"}");
    let before = daemons.metric(closed);
    client.socket.get_ref().set_write_timeout(Some(Duration::from_millis(200))).unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while daemons.metric(closed) == before {
        assert!(Instant::now() < deadline, "not closed; {most} bytes wait");
        // Each is answered twice, at the pace that one client may ask for, and the conversation does not fill.
        for asked in [&create, &delete] {
            let _ = client.socket.send(Message::text(asked.clone()));
        }
        // Who asks without a pause is closed as a flood.
        std::thread::sleep(Duration::from_millis(50));
        most = most.max(daemons.metric("fronthaul_edge_websocket_queued_bytes"));
    }
    let bound = f64::from((4 << 20) + (256 << 10));
    assert!(most <= bound, "{most}");
    daemons.until("nothing waits", |daemons| daemons.metric("fronthaul_edge_websocket_queued_bytes") == 0.0);
    assert!(daemons.metric("fronthaul_edge_websocket_unread_events_total") > 0.0);
    assert!(alike(&daemons.join("?model=parrot", OTHER).converse()) > 0.9);
}

#[test]
fn a_key_that_grants_15_s_grants_no_more() {
    let daemons = Daemons::start("leaked");
    let key = daemons
        .ephemeral(&json!({ "session": { "model": "parrot" }, "limits": { "max_seconds": 15, "max_concurrent": 1 } }));
    let mut client = daemons.join("", &key);
    let began = Instant::now();
    assert_eq!(daemons.ask("", &key, None).err(), Some((429, "too_many_concurrent".to_owned())));
    let (code, reason) = client.closed();
    let lasted = began.elapsed();
    assert!((14.0..17.0).contains(&lasted.as_secs_f64()), "{lasted:?}");
    assert_eq!(code, 1001);
    assert!(reason.contains("15 seconds"), "{reason}");
    assert_eq!(client.events.last().unwrap()["error"]["code"], "session_expired");
}

#[test]
fn a_sideband_is_for_the_tenant_of_the_call_alone() {
    let daemons = Daemons::start("sideband");
    let mut rtc = str0m::RtcConfig::new().build(Instant::now());
    let mut change = rtc.sdp_api();
    change.add_media(str0m::media::MediaKind::Audio, str0m::media::Direction::SendRecv, None, None, None);
    change.add_channel("oai-events".into());
    let offer = change.apply().unwrap().0.to_sdp_string();
    let created = daemons.post("/v1/realtime/calls?model=parrot", "application/sdp", &offer);
    let call = created.headers()["location"].to_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let query = format!("?call_id={call}");
    assert_eq!(daemons.ask(&query, OTHER, None).err(), Some((404, "call_id_not_found".to_owned())));
    assert_eq!(daemons.ask(&query, "nobody's", None).err(), Some((401, "invalid_api_key".to_owned())));
    assert!(daemons.ask(&query, APP, None).is_ok());
}

#[test]
fn a_transceiver_that_stops_tells_its_clients_to_come_again() {
    let mut daemons = Daemons::start("drain");
    let mut client = daemons.join("?model=parrot", APP);
    let transceiver = daemons.transceiver.take().unwrap();
    transceiver.stop(Duration::ZERO);
    assert_eq!(client.closed(), (1012, "transceiver stopping".to_owned()));
    drop(transceiver);
}
