//! The near end of a backend elsewhere: what a call's worker holds, and what the task behind it holds.
//!
//! Bounds. Towards the task: [`INPUTS`] messages; the task takes them at once, so that they are a hop and no queue. Towards the worker:
//! [`OUTPUTS`] messages on the way and as many that are not asked for yet, and [`SPEECH`] bytes of sound, each piece at least [`PIECE`]; beyond
//! either the task does not read the backend, and what the backend's own writes wait for is up to its transport.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use voice::{AgentAudio, Backend, BackendInput, BackendOutput, Failure, ResponseId, Wanted};

/// Inputs on their way to the task: 20 s of audio in 20 ms frames. A thread of backends that is that late loses the newest.
const INPUTS: usize = 1024;

/// Outputs on their way to the worker beside those that [`SPEECH`] counts.
const OUTPUTS: usize = 256;

/// Bytes of sound that wait for the dialogue, which itself holds 10 s: 87 s of PCM at 24 kHz. A backend that is further ahead is not read until
/// its reply was played or cancelled; 100 calls with such replies hold 400 MiB.
pub(crate) const SPEECH: usize = 4 << 20;

/// What a piece takes however little sound it has: a backend that speaks in single samples fills the room with 32,768 of them.
const PIECE: usize = 128;

/// An output, and the room that it takes until the dialogue has it.
type Held = (BackendOutput, Option<OwnedSemaphorePermit>);

/// A backend elsewhere, for one call.
#[derive(Debug)]
pub struct Seat {
    inputs: Option<mpsc::Sender<BackendInput>>,
    outputs: mpsc::Receiver<Held>,
    waker: Waker,
    /// The lane of speech, in its order.
    speech: VecDeque<Held>,
    /// What passes it.
    control: VecDeque<BackendOutput>,
    /// The latest of the responses that nobody wants the rest of.
    cancelled: Option<ResponseId>,
    /// Audio of the user's that the task had no room for.
    dropped: u64,
    corrections: bool,
}

/// The far end.
#[derive(Debug)]
pub(crate) struct Far {
    /// `None`: the call is over.
    pub(crate) inputs: mpsc::Receiver<BackendInput>,
    pub(crate) outputs: Outputs,
}

/// Where the task puts what a backend says.
#[derive(Debug)]
pub(crate) struct Outputs {
    to_worker: mpsc::Sender<Held>,
    room: Arc<Semaphore>,
}

pub(crate) fn pair() -> (Seat, Far) {
    let (to_task, inputs) = mpsc::channel(INPUTS);
    let (to_worker, outputs) = mpsc::channel(OUTPUTS);
    let seat = Seat {
        inputs: Some(to_task),
        outputs,
        waker: Waker::noop().clone(),
        speech: VecDeque::new(),
        control: VecDeque::new(),
        cancelled: None,
        dropped: 0,
        corrections: false,
    };
    let room = Arc::new(Semaphore::new(SPEECH));
    (seat, Far { inputs, outputs: Outputs { to_worker, room } })
}

impl Outputs {
    /// Waits for room, and hands an output to the worker. Cancel safe: what was not handed over is still in `output`. `false`: nobody is there.
    pub(crate) async fn give(&self, output: &mut Option<BackendOutput>) -> bool {
        let room = match output.as_ref().and_then(size) {
            None => None,
            // What is larger than all the room gets all of it.
            Some(size) => {
                let size = u32::try_from(size.min(SPEECH)).unwrap_or(u32::MAX);
                let Ok(room) = Arc::clone(&self.room).acquire_many_owned(size).await else { return false };
                Some(room)
            }
        };
        let Ok(place) = self.to_worker.reserve().await else { return false };
        if let Some(output) = output.take() {
            place.send((output, room));
        }
        true
    }
}

/// The room that it takes in the lane of speech. `None`: it is not in that lane.
fn size(output: &BackendOutput) -> Option<usize> {
    let sound = match output {
        BackendOutput::Audio { audio: AgentAudio::Pcm(pcm), .. } => pcm.len() * 2,
        BackendOutput::Audio { audio: AgentAudio::Bytes { data, .. }, .. } => data.len(),
        BackendOutput::Audio { audio: AgentAudio::Opus(packets), .. } => {
            packets.iter().map(|packet| packet.len() + size_of::<Vec<u8>>()).sum()
        }
        _ => 0,
    };
    is_speech(output).then_some(sound + PIECE)
}

/// Of which response it is sound.
fn sound_of(output: &BackendOutput) -> Option<ResponseId> {
    match output {
        BackendOutput::Audio { response, .. } if *response != ResponseId::UNASKED => Some(*response),
        _ => None,
    }
}

/// It follows the sound before it; the next stream's [`Ready`](BackendOutput::Ready) follows what the last one gave.
fn is_speech(output: &BackendOutput) -> bool {
    matches!(
        output,
        BackendOutput::Ready
            | BackendOutput::Audio { .. }
            | BackendOutput::ResponseDone { .. }
            | BackendOutput::ResponseIncomplete { .. }
            | BackendOutput::Fault { response: Some(_), .. }
            | BackendOutput::Closed
    )
}

impl Seat {
    /// The backend can use [`BackendInput::Correction`].
    #[must_use]
    pub fn with_corrections(self) -> Self {
        Self { corrections: true, ..self }
    }

    /// Frames of the user's audio that were dropped because the thread of backends was too late.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn fetch(&mut self) {
        let mut context = Context::from_waker(&self.waker);
        while self.control.len() < OUTPUTS
            && let Poll::Ready(Some(held)) = self.outputs.poll_recv(&mut context)
        {
            if sound_of(&held.0).is_some_and(|response| self.cancelled.is_some_and(|cancelled| response <= cancelled)) {
                continue;
            }
            if is_speech(&held.0) {
                self.speech.push_back(held);
            } else {
                self.control.push_back(held.0);
            }
        }
    }

    /// Nobody wants the rest: its room is free for what comes next. Responses rise, and one is made at a time.
    fn forget(&mut self, cancelled: ResponseId) {
        self.cancelled = Some(cancelled);
        self.fetch();
        self.speech.retain(|(output, _)| sound_of(output) != Some(cancelled));
    }
}

impl Backend for Seat {
    fn handle(&mut self, input: BackendInput) {
        if let BackendInput::Cancel { response } = input {
            self.forget(response);
        }
        let closes = input == BackendInput::Close;
        let Some(inputs) = &self.inputs else { return };
        match inputs.try_send(input) {
            Err(TrySendError::Full(BackendInput::Audio { .. } | BackendInput::Correction { .. })) => {
                self.dropped += 1;
                metrics::counter!("fronthaul_backend_audio_dropped_total", "at" => "worker").increment(1);
            }
            // What is told now would make no sense without it.
            Err(TrySendError::Full(_)) => {
                self.inputs = None;
                let failure = Failure::new("backend_overloaded", "the backend's thread is too late");
                self.control.push_back(BackendOutput::Fault { response: None, failure, retryable: true });
                self.control.push_back(BackendOutput::Closed);
            }
            Err(TrySendError::Closed(_)) | Ok(()) => {}
        }
        if closes {
            self.inputs = None;
        }
    }

    fn poll(&mut self, _: Instant, wanted: Wanted) -> Option<BackendOutput> {
        self.fetch();
        if let Some(output) = self.control.pop_front() {
            return Some(output);
        }
        if wanted == Wanted::Control {
            return None;
        }
        self.speech.pop_front().map(|(output, _)| output)
    }

    fn takes_corrections(&self) -> bool {
        self.corrections
    }

    fn set_waker(&mut self, waker: Waker) {
        self.waker = waker;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound(response: u64, bytes: usize) -> BackendOutput {
        let audio = AgentAudio::Bytes { rate: 24_000, data: vec![0; bytes] };
        BackendOutput::Audio { response: ResponseId(response), audio }
    }

    fn polled(seat: &mut Seat, wanted: Wanted) -> Vec<BackendOutput> {
        let now = Instant::now();
        std::iter::from_fn(|| seat.poll(now, wanted)).collect()
    }

    #[tokio::test]
    async fn words_pass_the_sound_that_waits_and_ends_do_not() {
        let (mut seat, far) = pair();
        let response = ResponseId(1);
        let words = BackendOutput::Text { response, delta: "Yes.".to_owned(), words: Vec::new() };
        let done = BackendOutput::ResponseDone { response };
        for output in [sound(1, 8), words.clone(), done.clone()] {
            assert!(far.outputs.give(&mut Some(output)).await);
        }
        assert_eq!(polled(&mut seat, Wanted::Control), [words]);
        assert_eq!(polled(&mut seat, Wanted::All), [sound(1, 8), done]);
    }

    #[tokio::test]
    async fn sound_beyond_the_room_waits_until_some_is_taken_or_cancelled() {
        let (mut seat, far) = pair();
        assert!(far.outputs.give(&mut Some(sound(1, SPEECH))).await);
        let mut next = Some(sound(2, 2));
        let waits = |mut output: Option<BackendOutput>| {
            let far = &far;
            async move { tokio::time::timeout(std::time::Duration::ZERO, far.outputs.give(&mut output)).await.is_err() }
        };
        assert!(waits(next.clone()).await);
        seat.handle(BackendInput::Cancel { response: ResponseId(1) });
        assert!(far.outputs.give(&mut next).await);
        assert_eq!(polled(&mut seat, Wanted::All), [sound(2, 2)]);
    }

    /// Gives until there is no room, and takes in what was given; how many that were.
    async fn flood(seat: &mut Seat, far: &Far, output: &BackendOutput) -> usize {
        let mut given = 0;
        loop {
            seat.poll(Instant::now(), Wanted::Control);
            let mut output = Some(output.clone());
            if tokio::time::timeout(std::time::Duration::ZERO, far.outputs.give(&mut output)).await.is_err() {
                return given;
            }
            given += 1;
        }
    }

    #[tokio::test]
    async fn pieces_without_sound_and_ends_take_room_too() {
        let nothing = sound(0, 0);
        let end = BackendOutput::ResponseDone { response: ResponseId::UNASKED };
        for output in [nothing, end] {
            let (mut seat, far) = pair();
            assert_eq!(flood(&mut seat, &far, &output).await, SPEECH / PIECE);
        }
    }

    #[tokio::test]
    async fn what_is_not_asked_for_stays_where_it_is() {
        let (mut seat, far) = pair();
        for _ in 0..4 {
            while tokio::time::timeout(std::time::Duration::ZERO, far.outputs.give(&mut Some(BackendOutput::Initiate)))
                .await
                .is_ok()
            {}
            assert_eq!(seat.poll(Instant::now(), Wanted::All), Some(BackendOutput::Initiate));
            assert!(seat.control.len() < OUTPUTS);
        }
    }

    #[tokio::test]
    async fn a_seat_whose_task_is_too_late_drops_audio_and_ends_when_more_is_lost() {
        let (mut seat, _far) = pair();
        let audio = || BackendInput::Audio { pcm: vec![0; 320], media_time: 0 };
        for _ in 0..INPUTS + 3 {
            seat.handle(audio());
        }
        assert_eq!((seat.dropped(), polled(&mut seat, Wanted::All).len()), (3, 0));
        seat.handle(BackendInput::Connected);
        let outputs = polled(&mut seat, Wanted::All);
        assert!(matches!(
            outputs[..],
            [BackendOutput::Closed] | [BackendOutput::Fault { response: None, .. }, BackendOutput::Closed]
        ));
    }

    #[tokio::test]
    async fn whoever_polls_is_woken_by_what_comes() {
        use std::sync::atomic::{AtomicBool, Ordering};
        struct Flag(AtomicBool);
        impl std::task::Wake for Flag {
            fn wake(self: Arc<Self>) {
                self.0.store(true, Ordering::Release);
            }
        }
        let (mut seat, far) = pair();
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        seat.set_waker(Arc::clone(&flag).into());
        assert!(polled(&mut seat, Wanted::All).is_empty());
        assert!(far.outputs.give(&mut Some(BackendOutput::Ready)).await);
        assert!(flag.0.load(Ordering::Acquire));
    }
}
