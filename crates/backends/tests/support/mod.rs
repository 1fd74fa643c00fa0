//! A backend in this process that does what a test wants, and the seat of a call that talks to it.
#![allow(dead_code, reason = "each test uses some of it")]

pub(crate) mod proxy;

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backends::grpc::Endpoint;
use backends::grpc::proto::backend_server::{Backend as Service, BackendServer};
use backends::grpc::proto::{self, Input, Output, input, output};
use backends::{BackendThread, Kind, Route, Seat, Session, Target, Timeouts};
use futures_util::Stream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};
use voice::{AgentAudio, Backend as _, BackendInput, BackendOutput, Request as Wish, ResponseId, Settings, Wanted};

/// Waiting for what must come.
const PATIENCE: Duration = Duration::from_secs(10);

/// One stream as a test's backend sees it.
pub(crate) struct Conversation {
    /// Which of the process: 0 is the first.
    pub(crate) number: usize,
    /// What it is told.
    pub(crate) inputs: Streaming<Input>,
    /// Where it answers.
    pub(crate) outputs: mpsc::Sender<Result<Output, Status>>,
}

impl Conversation {
    /// The next input. `None`: the call is over.
    pub(crate) async fn next(&mut self) -> Option<input::Kind> {
        self.inputs.message().await.ok().flatten()?.kind
    }

    /// Reads on until a response is asked for; its id.
    pub(crate) async fn asked(&mut self) -> Option<u64> {
        loop {
            if let input::Kind::CreateResponse(create) = self.next().await? {
                return Some(create.response);
            }
        }
    }

    /// Says something.
    pub(crate) async fn say(&self, kind: output::Kind) {
        // A test whose stream is gone sees that elsewhere.
        let _ = self.outputs.send(Ok(Output { kind: Some(kind) })).await;
    }

    /// Says that it takes audio.
    pub(crate) async fn ready(&self) {
        self.say(output::Kind::Ready(proto::Ready::default())).await;
    }
}

/// Speech of so many bytes.
pub(crate) fn speech(response: u64, bytes: usize) -> output::Kind {
    output::Kind::Audio(proto::Speak { response, form: Some(proto::speak::Form::Pcm(vec![1; bytes])) })
}

/// The end of a response.
pub(crate) fn done(response: u64) -> output::Kind {
    output::Kind::ResponseDone(proto::ResponseDone { response, incomplete: 0 })
}

/// Asks for a response.
pub(crate) fn create(response: u64) -> BackendInput {
    BackendInput::CreateResponse { response: ResponseId(response), request: Wish::default() }
}

/// [`speech`] as the dialogue gets it.
pub(crate) fn sound(response: u64, bytes: usize) -> BackendOutput {
    let audio = AgentAudio::Bytes { rate: 16_000, data: vec![1; bytes] };
    BackendOutput::Audio { response: ResponseId(response), audio }
}

/// [`done`] as the dialogue gets it.
pub(crate) fn ended(response: u64) -> BackendOutput {
    BackendOutput::ResponseDone { response: ResponseId(response) }
}

/// The response and the code of a fault.
pub(crate) fn fault(output: &BackendOutput) -> (Option<u64>, &str) {
    let BackendOutput::Fault { response, failure, .. } = output else { panic!("{output:?}") };
    (response.map(|response| response.0), &failure.code)
}

type Doing = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;
type Script = dyn Fn(Conversation) -> Doing + Send + Sync;

struct Fake {
    script: Arc<Script>,
    streams: std::sync::atomic::AtomicUsize,
}

#[tonic::async_trait]
impl Service for Fake {
    type ConverseStream = Pin<Box<dyn Stream<Item = Result<Output, Status>> + Send>>;

    async fn converse(&self, request: Request<Streaming<Input>>) -> Result<Response<Self::ConverseStream>, Status> {
        let (outputs, stream) = mpsc::channel(4);
        let number = self.streams.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let conversation = Conversation { number, inputs: request.into_inner(), outputs: outputs.clone() };
        let doing = (self.script)(conversation);
        tokio::spawn(async move {
            if let Err(status) = doing.await {
                let _ = outputs.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// A server, and the thread of backends of a transceiver.
pub(crate) struct Rig {
    runtime: tokio::runtime::Runtime,
    backends: BackendThread,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { runtime, backends: BackendThread::start().unwrap() }
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// A server that does this in each stream.
    pub(crate) fn serve<F>(&self, script: impl Fn(Conversation) -> F + Send + Sync + 'static) -> SocketAddr
    where
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let listener = self.runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let script: Arc<Script> = Arc::new(move |conversation| Box::pin(script(conversation)));
        let fake = Fake { script, streams: std::sync::atomic::AtomicUsize::new(0) };
        let served = tonic::transport::Server::builder()
            .add_service(BackendServer::new(fake))
            .serve_with_incoming(TcpListenerStream::new(listener));
        self.runtime.spawn(served);
        address
    }

    /// A call whose backends are these.
    pub(crate) fn call(&self, targets: Vec<Target>) -> Caller {
        let session = Session { name: "00000000000000ff".to_owned(), model: "agent".to_owned(), rate: 16_000 };
        let mut seat = self.backends.backends().open(&Route { targets: targets.into() }, session);
        let settings = Settings { instructions: "Be brief.".to_owned(), ..Settings::default() };
        seat.handle(BackendInput::Settings(Arc::new(settings)));
        Caller { seat }
    }
}

/// A gRPC backend there.
pub(crate) fn at(address: SocketAddr) -> Target {
    let endpoint = Endpoint::new(&format!("http://{address}"), None, &[]).unwrap();
    Target {
        name: "agent".into(),
        kind: Kind::Grpc(endpoint),
        timeouts: Timeouts { ready: Duration::from_millis(500), stalled: Duration::from_millis(500) },
    }
}

/// The seat of a call, with a reader's patience.
pub(crate) struct Caller {
    pub(crate) seat: Seat,
}

impl Caller {
    pub(crate) fn tell(&mut self, input: BackendInput) {
        self.seat.handle(input);
    }

    /// The next output.
    pub(crate) fn hear(&mut self) -> BackendOutput {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(output) = self.seat.poll(Instant::now(), Wanted::All) {
                return output;
            }
            assert!(Instant::now() < until, "nothing came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// What is there beside the lane of speech.
    pub(crate) fn look(&mut self) -> Option<BackendOutput> {
        self.seat.poll(Instant::now(), Wanted::Control)
    }

    /// So many outputs.
    pub(crate) fn hear_all(&mut self, count: usize) -> Vec<BackendOutput> {
        (0..count).map(|_| self.hear()).collect()
    }
}
