//! An edge and a transceiver as they are deployed, a backend that speaks gRPC, and a client over WebSocket.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod upgrade;

use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::time::{Duration, Instant};

use backends::grpc::proto::backend_server::{Backend, BackendServer};
use backends::grpc::proto::{self, Input, Output, input, item, output};
use edge::{Config, Edge, TransceiverConfig};
use serde_json::{Value, json};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocket;
use tonic::{Request, Response, Status, Streaming};
use transceiver::{ModelConfig, ModelKind, Transceiver};
use upgrade::upgrade;

/// Repeats what was written last, in words and a second of sound.
struct Repeating;

#[tonic::async_trait]
impl Backend for Repeating {
    type ConverseStream = Pin<Box<dyn Stream<Item = Result<Output, Status>> + Send>>;

    async fn converse(&self, request: Request<Streaming<Input>>) -> Result<Response<Self::ConverseStream>, Status> {
        if request.metadata().get("authorization").is_none_or(|key| key != "Bearer a word") {
            return Err(Status::unauthenticated("who are you?"));
        }
        let (outputs, stream) = tokio::sync::mpsc::channel(16);
        let mut inputs = request.into_inner();
        tokio::spawn(async move {
            let mut written = String::new();
            while let Some(Ok(Input { kind: Some(kind) })) = inputs.next().await {
                let said = match kind {
                    input::Kind::Start(start) => {
                        // What was written while another backend was asked.
                        if let Some(item::Kind::Message(message)) =
                            start.history.into_iter().last().and_then(|item| item.kind)
                        {
                            written = message.text;
                        }
                        vec![output::Kind::Ready(proto::Ready::default())]
                    }
                    input::Kind::Item(proto::Item { kind: Some(item::Kind::Message(message)), .. }) => {
                        written = message.text;
                        Vec::new()
                    }
                    input::Kind::CreateResponse(create) => answer(create.response, &written),
                    _ => Vec::new(),
                };
                for kind in said {
                    if outputs.send(Ok(Output { kind: Some(kind) })).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

fn answer(response: u64, written: &str) -> Vec<output::Kind> {
    let delta = format!("You wrote: {written}");
    let pcm = proto::speak::Form::Pcm([7, 0].repeat(16_000));
    vec![
        output::Kind::ResponseStarted(proto::ResponseStarted { response }),
        output::Kind::Text(proto::Text { response, delta, words: Vec::new() }),
        output::Kind::Audio(proto::Speak { response, form: Some(pcm) }),
        output::Kind::ResponseDone(proto::ResponseDone { response, incomplete: 0 }),
    ]
}

fn serve(runtime: &tokio::runtime::Runtime) -> SocketAddr {
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let server = tonic::transport::Server::builder().add_service(BackendServer::new(Repeating));
    runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    address
}

fn join(address: SocketAddr, model: &str) -> WebSocket<TcpStream> {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    upgrade(stream, &format!("?model={model}"), "").unwrap()
}

/// Writes something and asks for an answer; its events.
fn converse(socket: &mut WebSocket<TcpStream>, words: &str) -> Vec<Value> {
    let content = json!([{ "type": "input_text", "text": words }]);
    let item = json!({ "type": "message", "role": "user", "content": content });
    for event in [json!({ "type": "conversation.item.create", "item": item }), json!({ "type": "response.create" })] {
        socket.send(Message::text(event.to_string())).unwrap();
    }
    let mut events = Vec::new();
    loop {
        if let Message::Text(text) = socket.read().unwrap() {
            let event: Value = serde_json::from_str(&text).unwrap();
            let over = event["type"] == "response.done";
            events.push(event);
            if over {
                return events;
            }
        }
    }
}

#[test]
fn a_client_hears_what_a_grpc_backend_says_also_as_a_fallback_and_by_choice() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let backend = serve(&runtime);
    let state = std::env::temp_dir().join(format!("fronthaul-e2e-grpc-{}", std::process::id()));
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let grpc = |key: &str, fallback: &[&str]| ModelConfig {
        kind: ModelKind::Grpc,
        url: Some(format!("http://{backend}")),
        key: Some(daemon::config::Secret::new(key)),
        fallback: fallback.iter().map(|name| (*name).to_owned()).collect(),
        ..ModelConfig::default()
    };
    let refused = grpc("another word", &["agent"]);
    let choice =
        ModelConfig { kind: ModelKind::Choice, of: [("agent".to_owned(), 1)].into(), ..ModelConfig::default() };
    let transceiver = Transceiver::start(&transceiver::Config {
        link_bind: any,
        state_dir: state.display().to_string(),
        workers: 1,
        seats: 4,
        models: [("agent", grpc("a word", &[])), ("refused", refused), ("chosen", choice)]
            .map(|(name, model)| (name.to_owned(), model))
            .into(),
        ..transceiver::Config::default()
    })
    .unwrap();
    let config = Config {
        workers: 1,
        media_bind: any,
        http_bind: any,
        admin_bind: any,
        default_model: "agent".to_owned(),
        models: ["agent", "refused", "chosen"].map(|name| (name.to_owned(), name.to_owned())).into(),
        transceivers: vec![TransceiverConfig { id: 1, address: transceiver.link_addr() }],
        state_dir: state.clone(),
        drain_timeout_ms: 100,
        ..Config::default()
    };
    let edge = Edge::start(config, daemon::Metrics::install().unwrap()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while edge.lifecycle().readiness().is_err() {
        assert!(Instant::now() < deadline, "not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    for model in ["agent", "refused", "chosen"] {
        let mut socket = join(edge.http_addr(), model);
        for words in ["one", "two"] {
            let events = converse(&mut socket, words);
            let named = |kind: &str| events.iter().filter(|event| event["type"] == kind).collect::<Vec<_>>();
            let transcript = &named("response.output_audio_transcript.done")[0]["transcript"];
            assert_eq!(*transcript, format!("You wrote: {words}"), "{model}");
            let sound: usize = named("response.output_audio.delta")
                .iter()
                .map(|delta| delta["delta"].as_str().unwrap().len() / 4 * 3)
                .sum();
            assert!((46_000..=50_000).contains(&sound), "a second at 24 kHz: {sound}");
            assert_eq!(events.last().unwrap()["response"]["status"], "completed");
        }
    }
    drop(edge);
    drop(transceiver);
    std::fs::remove_dir_all(&state).unwrap();
}
