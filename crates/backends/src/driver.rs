//! The task of one call: a stream at a time, opened, driven, and followed by another one until the call is over.
//!
//! Run loop: [`run`] opens the stream of a target and carries both directions ([`Call::carry`]) until it breaks or the call ends. While there is no
//! stream, what the dialogue says is noted ([`Memory`], [`Responses`]) and told at the beginning of the next one.
//!
//! Invariant: the dialogue's words are taken at once, whatever the backend does; so a cancel always gets through, and frees the room that
//! speech waits for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{Sink, SinkExt, Stream, StreamExt};
use rand::RngExt;
use voice::{BackendInput, BackendOutput, Failure, Item, ItemKind, Settings, Wanted};

use crate::memory::Memory;
use crate::responses::{Responses, Took};
use crate::seat::Far;
use crate::target::{Kind, Local, Session, Target};
use crate::{Lost, Machine, Told, grpc};

/// Most audio that waits for a stream that takes none, beside that of a turn which is told again: 10 s in frames of 20 ms. Beyond it the oldest goes.
const AUDIO_WAITING: usize = 500;

/// Between one round of targets and the next: doubled each time from here.
const BACKOFF: Duration = Duration::from_millis(100);

/// ... and up to here, give or take half.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Bytes of what is no audio that wait for a stream that takes none: four of a client's largest messages, or 16,384 of the smallest. Beyond it the
/// stream is given up, and the next one begins with all of it.
const SAID_WAITING: usize = 4 << 20;

/// What a message counts at least.
const MESSAGE: usize = 256;

/// A stream that was ready for this long and breaks is opened again at once.
const STEADY: Duration = Duration::from_secs(10);

/// Streams in a row that are opened at once though they broke sooner. The next one that does is like one that cannot be had: the others are tried,
/// and then there is a pause.
const BREAKS: u32 = 2;

/// What a stream that is closed is given to send its last word.
const PARTING: Duration = Duration::from_secs(1);

/// How a stream begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Beginning {
    /// Whose it is.
    pub session: Session,
    /// What holds.
    pub settings: Arc<Settings>,
    /// What was said so far, oldest first.
    pub history: Vec<Item>,
    /// What the backend wants back; empty: nothing.
    pub snapshot: Vec<u8>,
    /// Streams before this one.
    pub reopened: u32,
}

/// Why a stream is not driven any more.
enum End {
    /// The call is over.
    Closed,
    /// It broke, or could not be had.
    Lost {
        lost: Lost,
        /// Since the backend had said that it is ready. `None`: it had not.
        lasted: Option<Duration>,
    },
}

/// Of streams that did not last, one after the other.
#[derive(Debug, Default)]
struct Trouble {
    /// Those that could not be had.
    failures: u32,
    /// Those of the same target that were ready.
    breaks: u32,
}

impl Trouble {
    /// Notes a stream that was lost. `true`: it is not worth the next one.
    fn note(&mut self, lasted: Option<Duration>) -> bool {
        if lasted.is_some_and(|lasted| lasted >= STEADY) {
            *self = Self::default();
        }
        if lasted.is_some() && self.breaks < BREAKS {
            self.breaks += 1;
            return false;
        }
        *self = Self { failures: self.failures + 1, breaks: 0 };
        true
    }
}

/// The call's side of all its streams.
struct Call {
    far: Far,
    session: Session,
    memory: Memory,
    responses: Responses,
    streams: u32,
    /// The dialogue knows that no backend can be had.
    gone: bool,
}

/// Drives a call's backend until the call is over.
pub(crate) async fn run(targets: Arc<[Target]>, session: Session, far: Far) {
    let mut call =
        Call { far, session, memory: Memory::default(), responses: Responses::default(), streams: 0, gone: false };
    // What holds is told first; a stream begins with it.
    while !call.memory.has_settings() {
        match call.far.inputs.recv().await {
            Some(BackendInput::Close) | None => return,
            Some(input) => drop(call.noted(input)),
        }
    }
    let round = u32::try_from(targets.len()).unwrap_or(u32::MAX);
    let (mut at, mut trouble) = (0, Trouble::default());
    loop {
        let Some(target) = targets.get(at) else { return };
        match call.stream(target).await {
            End::Closed => break,
            End::Lost { lost, lasted } => {
                let failed = trouble.note(lasted);
                let gone = failed && trouble.failures.is_multiple_of(round);
                let rounds = match (gone, lost.is_final) {
                    (false, _) => 0,
                    (true, false) => trouble.failures / round,
                    (true, true) => u32::MAX,
                };
                if !call.lost(target, &lost, gone).await || !call.pause(rounds).await {
                    break;
                }
                if failed {
                    at = (at + 1) % targets.len();
                }
            }
        }
    }
}

impl Call {
    /// One stream, from its opening to its end.
    async fn stream(&mut self, target: &Target) -> End {
        self.streams += 1;
        let ready = tokio::time::Instant::now() + target.timeouts.ready;
        match &target.kind {
            Kind::Local(local) => self.local(local).await,
            Kind::Grpc(endpoint) => {
                let mut waiting = Waiting::new(self.memory.unanswered(), self.responses.ask());
                let opening = grpc::open(endpoint, self.beginning());
                let opened = match self.meanwhile(Some(&mut waiting), tokio::time::timeout_at(ready, opening)).await {
                    None => return End::Closed,
                    Some(Err(_)) => Err(Lost::new("silent", "no stream within ready_timeout_ms")),
                    Some(Ok(opened)) => opened,
                };
                let end = match opened {
                    Ok((machine, up, down)) => self.carry(target, ready, waiting, machine, up, down).await,
                    Err(lost) => End::Lost { lost, lasted: None },
                };
                if let End::Lost { lost, .. } = &end
                    && matches!(lost.reason, "silent" | "stalled")
                {
                    endpoint.renew();
                }
                end
            }
        }
    }

    fn beginning(&self) -> Beginning {
        Beginning {
            session: self.session.clone(),
            settings: self.memory.settings(),
            history: self.memory.history(),
            snapshot: self.memory.snapshot().to_vec(),
            reopened: self.streams.saturating_sub(1),
        }
    }

    /// Carries both directions. `ready`: when the backend has to have said that it is.
    async fn carry<M: Machine>(
        &mut self,
        target: &Target,
        ready: tokio::time::Instant,
        mut waiting: Waiting,
        mut machine: M,
        mut up: impl Sink<M::Up> + Unpin,
        mut down: impl Stream<Item = Result<M::Down, Lost>> + Unpin,
    ) -> End {
        let opened = Instant::now();
        let mut outputs: VecDeque<BackendOutput> = VecDeque::new();
        let (mut readied, mut sendable, mut stalled) = (None, None, None);
        loop {
            // What the machine says may be for the stream too: a response that is asked for again.
            loop {
                while let Some(told) = machine.poll_output() {
                    let Some(output) = self.told(target, told, &mut waiting) else { continue };
                    if output == BackendOutput::Ready && readied.is_none() {
                        readied = Some(Instant::now());
                        self.gone = false;
                        metrics::histogram!("fronthaul_backend_ready_seconds", "model" => Arc::clone(&target.name))
                            .record(opened.elapsed());
                    }
                    outputs.push_back(output);
                }
                sendable = sendable.or_else(|| machine.poll_up());
                if sendable.is_some() {
                    break;
                }
                let Some(input) = waiting.pop() else { break };
                machine.handle_input(input);
            }
            let mut next = outputs.pop_front();
            // One whose own words have no room here may well wait for that before it reads.
            stalled = match (&sendable, &next) {
                (Some(_), None) => stalled.or_else(|| Some(tokio::time::Instant::now() + target.timeouts.stalled)),
                _ => None,
            };
            let due = readied.is_none().then_some(ready).into_iter().chain(stalled).min();
            let lost = tokio::select! {
                () = std::future::ready(()), if waiting.is_full => {
                    Some(Lost::new("stalled", "too much waits for a backend that does not read"))
                }
                input = self.far.inputs.recv() => {
                    match input {
                        Some(input) if input != BackendInput::Close => {
                            if let Some(input) = self.noted(input) {
                                waiting.push(input);
                            }
                            None
                        }
                        _ => {
                            machine.handle_input(BackendInput::Close);
                            part(machine, sendable, up, down).await;
                            return End::Closed;
                        }
                    }
                }
                given = self.far.outputs.give(&mut next), if next.is_some() => {
                    if !given {
                        machine.handle_input(BackendInput::Close);
                        part(machine, sendable, up, down).await;
                        return End::Closed;
                    }
                    None
                }
                came = down.next(), if next.is_none() => match came {
                    Some(Ok(message)) => {
                        stalled = None;
                        machine.handle_down(message).err()
                    }
                    Some(Err(lost)) => Some(lost),
                    None => Some(Lost::new("closed", "the backend ended the stream")),
                },
                sent = send(&mut up, &mut sendable), if sendable.is_some() => {
                    stalled = None;
                    (!sent).then(|| Lost::new("closed", "the backend does not read any more"))
                }
                () = until(due) => {
                    Some(match readied {
                        None if tokio::time::Instant::now() >= ready => {
                            Lost::new("silent", "not ready within ready_timeout_ms")
                        }
                        _ => Lost::new("stalled", "the backend neither reads nor says anything"),
                    })
                }
            };
            if let Some(output) = next {
                outputs.push_front(output);
            }
            if let Some(lost) = lost {
                // What came before it is told.
                for output in outputs {
                    if !self.tell(output, drop).await {
                        return End::Closed;
                    }
                }
                return End::Lost { lost, lasted: readied.map(|since: Instant| since.elapsed()) };
            }
        }
    }

    /// A machine inside this process.
    async fn local(&mut self, local: &Local) -> End {
        let mut machine = (local.0)();
        machine.handle(BackendInput::Settings(self.memory.settings()));
        let history = self.memory.history().into_iter().map(|item| BackendInput::Item(Box::new(item)));
        for input in history.chain(self.memory.unanswered()).chain(self.responses.ask()) {
            machine.handle(input);
        }
        loop {
            while let Some(output) = machine.poll(Instant::now(), Wanted::All) {
                match self.responses.output(output) {
                    Took::Tell(output) => {
                        self.memory.note_output(&output);
                        if !self.tell(output, |input| machine.handle(input)).await {
                            return End::Closed;
                        }
                    }
                    Took::Again(input) => machine.handle(input),
                    Took::Orphan => count_orphan(),
                    Took::Drop => {}
                }
            }
            let due = machine.poll_timeout(Wanted::All).map(tokio::time::Instant::from_std);
            tokio::select! {
                input = self.far.inputs.recv() => match input {
                    Some(BackendInput::Close) | None => return End::Closed,
                    Some(input) => {
                        if let Some(input) = self.noted(input) {
                            machine.handle(input);
                        }
                    }
                },
                () = until(due) => {}
            }
        }
    }

    /// Notes what the dialogue says; what the stream is told of it.
    fn noted(&mut self, input: BackendInput) -> Option<BackendInput> {
        self.memory.note_input(&input);
        self.responses.input(input)
    }

    /// What the dialogue is told of what a machine says.
    fn told(&mut self, target: &Target, told: Told, waiting: &mut Waiting) -> Option<BackendOutput> {
        let output = match told {
            Told::Output(output) => output,
            Told::Odd(what) => {
                let model = Arc::clone(&target.name);
                metrics::counter!("fronthaul_backend_odd_outputs_total", "model" => model, "what" => what).increment(1);
                return None;
            }
            Told::Snapshot(snapshot) => {
                self.memory.note_snapshot(snapshot);
                return None;
            }
        };
        match self.responses.output(output) {
            Took::Tell(output) => {
                self.memory.note_output(&output);
                Some(output)
            }
            Took::Again(input) => {
                waiting.push(input);
                None
            }
            Took::Orphan => {
                count_orphan();
                None
            }
            Took::Drop => None,
        }
    }

    /// Notes what the dialogue says until something is done, and keeps it for the stream that is being opened. `None`: the call is over.
    async fn meanwhile<T>(&mut self, mut waiting: Option<&mut Waiting>, doing: impl Future<Output = T>) -> Option<T> {
        let mut doing = std::pin::pin!(doing);
        loop {
            tokio::select! {
                done = &mut doing => return Some(done),
                input = self.far.inputs.recv() => {
                    let input = input.filter(|input| *input != BackendInput::Close)?;
                    if let Some(input) = self.noted(input)
                        && let Some(waiting) = &mut waiting
                    {
                        waiting.push(input);
                    }
                }
            }
        }
    }

    /// Tells of a stream that is gone. `false`: the call is over.
    async fn lost(&mut self, target: &Target, lost: &Lost, gone: bool) -> bool {
        let Lost { reason, detail, .. } = lost;
        metrics::counter!("fronthaul_backend_lost_total", "model" => Arc::clone(&target.name), "reason" => *reason)
            .increment(1);
        tracing::warn!(session = self.session.name, model = %target.name, reason, detail, "backend lost");
        let code = "backend_unavailable";
        let news = gone && !std::mem::replace(&mut self.gone, gone);
        // The detail may name hosts, which are no client's business: the log has it.
        let failure = || Failure::new(code, "no backend can be had; it is tried again");
        let told = if gone { self.responses.fail(failure()) } else { self.responses.lost() };
        let told =
            told.or_else(|| news.then(|| BackendOutput::Fault { response: None, failure: failure(), retryable: true }));
        match told {
            Some(output) => self.tell(output, drop).await,
            None => true,
        }
    }

    /// Tells the dialogue, waiting for room, and hears it meanwhile: `hear` gets what a stream is told. `false`: the call is over.
    async fn tell(&mut self, output: BackendOutput, mut hear: impl FnMut(BackendInput)) -> bool {
        let mut output = Some(output);
        loop {
            tokio::select! {
                given = self.far.outputs.give(&mut output) => return given,
                input = self.far.inputs.recv() => {
                    let Some(input) = input.filter(|input| *input != BackendInput::Close) else { return false };
                    if let Some(input) = self.noted(input) {
                        hear(input);
                    }
                }
            }
        }
    }

    /// Waits before the next try. `false`: the call is over.
    async fn pause(&mut self, rounds: u32) -> bool {
        if rounds == 0 {
            return true;
        }
        let wait = BACKOFF.saturating_mul(1 << (rounds - 1).min(10)).min(BACKOFF_MAX);
        let wait = wait.mul_f64(rand::rng().random_range(0.5..1.5));
        self.meanwhile(None, tokio::time::sleep(wait)).await.is_some()
    }
}

/// What waits for a stream.
struct Waiting {
    inputs: VecDeque<BackendInput>,
    audio: usize,
    audio_max: usize,
    /// Bytes of what is no audio.
    said: usize,
    /// There was too much of it, and it is gone.
    is_full: bool,
}

impl Waiting {
    fn new(said: Vec<BackendInput>, asked: Option<BackendInput>) -> Self {
        let inputs: VecDeque<_> = said.into_iter().chain(asked).collect();
        let audio = inputs.iter().filter(|input| is_audio(input)).count();
        let said = inputs.iter().map(size).sum();
        Self { inputs, audio, audio_max: AUDIO_WAITING + audio, said, is_full: false }
    }

    fn push(&mut self, input: BackendInput) {
        if is_audio(&input) {
            self.audio += 1;
            if self.audio > self.audio_max
                && let Some(oldest) = self.inputs.iter().position(is_audio)
            {
                self.inputs.remove(oldest);
                self.audio -= 1;
                metrics::counter!("fronthaul_backend_audio_dropped_total", "at" => "stream").increment(1);
            }
        }
        self.said += size(&input);
        self.inputs.push_back(input);
        if self.said > SAID_WAITING {
            *self = Self { is_full: true, ..Self::new(Vec::new(), None) };
        }
    }

    fn pop(&mut self) -> Option<BackendInput> {
        let input = self.inputs.pop_front()?;
        self.audio -= usize::from(is_audio(&input));
        self.said -= size(&input);
        Some(input)
    }
}

fn is_audio(input: &BackendInput) -> bool {
    matches!(input, BackendInput::Audio { .. } | BackendInput::Correction { .. })
}

/// Bytes of what is no audio.
fn size(input: &BackendInput) -> usize {
    let words = match input {
        BackendInput::Audio { .. } | BackendInput::Correction { .. } => return 0,
        BackendInput::Settings(settings) => {
            settings.json.len() + settings.instructions.len() + settings.tools.len() + settings.tool_choice.len()
        }
        BackendInput::Item(item) => {
            let kind = match &item.kind {
                ItemKind::Message { text, .. } => text.len(),
                ItemKind::ToolCall { arguments, .. } => arguments.len(),
                ItemKind::ToolResult { output, .. } => output.len(),
                ItemKind::Speech { .. } | ItemKind::Output { .. } | ItemKind::Other => 0,
            };
            item.json.len() + kind
        }
        BackendInput::ItemTruncated { text, .. } => text.as_ref().map_or(0, String::len),
        BackendInput::CreateResponse { request, .. } => request
            .overrides
            .as_ref()
            .map_or(0, |overrides| overrides.json.len() + overrides.instructions.as_ref().map_or(0, String::len)),
        _ => 0,
    };
    words + MESSAGE
}

/// Sends what is there, once there is room. `false`: nobody takes it. Cancel safe: what was not taken stays.
async fn send<T>(up: &mut (impl Sink<T> + Unpin), message: &mut Option<T>) -> bool {
    if std::future::poll_fn(|context| up.poll_ready_unpin(context)).await.is_err() {
        return false;
    }
    match message.take() {
        Some(message) => up.start_send_unpin(message).is_ok() && up.flush().await.is_ok(),
        None => true,
    }
}

/// Sends a stream's last words, closes it, and lets the backend end it: whoever is hung up on loses what was just said.
async fn part<M: Machine>(
    mut machine: M,
    first: Option<M::Up>,
    mut up: impl Sink<M::Up> + Unpin,
    mut down: impl Stream<Item = Result<M::Down, Lost>> + Unpin,
) {
    let parting = async {
        for message in first.into_iter().chain(std::iter::from_fn(|| machine.poll_up())) {
            if up.feed(message).await.is_err() {
                return;
            }
        }
        // Whoever is gone need not be told.
        let _ = up.close().await;
        drop(up);
        while let Some(Ok(_)) = down.next().await {}
    };
    let _ = tokio::time::timeout(PARTING, parting).await;
}

async fn until(due: Option<tokio::time::Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn count_orphan() {
    metrics::counter!("fronthaul_backend_orphans_total").increment(1);
}
