//! The queues of one call towards its edge, and the tasks that empty them.
//!
//! Messages and audio have a task each, because a session stream must not wait for an utterance stream that the edge does
//! not read: a Pause would queue behind the very audio it is to pause.

use std::cell::Cell;
use std::rc::Rc;

use link::ids::UtteranceId;
use link::proto::{Close, TransceiverMessage, UtteranceFrame, UtteranceHeader, transceiver_message};
use link::quic::{Link, SessionTx, StreamError, UtteranceTx};
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

/// Messages that wait for the session stream: a minute of audio in events of 20 ms, sent ahead of time. An edge that reads so
/// little is not there.
const MESSAGES: usize = 3072;

/// And their bytes: 20 of the largest event (192 KiB of session and its envelope).
const MESSAGE_BYTES: usize = 4 << 20;

/// Audio that waits for the utterance stream: the credit is 1 s and one report interval, 55 frames of 20 ms, twice.
const AUDIO: usize = 128;

/// Of [`AUDIO`], kept for beginnings and ends of utterances: three replies may wait.
const AUDIO_RESERVE: usize = 8;

/// What is open towards edges, for the metrics.
#[derive(Debug, Default)]
pub(super) struct Sending {
    session_streams: Cell<u64>,
    utterance_streams: Cell<u64>,
}

impl Sending {
    pub(super) fn session_streams(&self) -> u64 {
        self.session_streams.get()
    }

    pub(super) fn utterance_streams(&self) -> u64 {
        self.utterance_streams.get()
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Session,
    Utterance,
}

/// Counts one stream while it lives.
struct Counted {
    sending: Rc<Sending>,
    kind: Kind,
}

impl Counted {
    fn new(sending: &Rc<Sending>, kind: Kind) -> Self {
        let counted = Self { sending: Rc::clone(sending), kind };
        counted.count().set(counted.count().get() + 1);
        counted
    }

    fn count(&self) -> &Cell<u64> {
        match self.kind {
            Kind::Session => &self.sending.session_streams,
            Kind::Utterance => &self.sending.utterance_streams,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count().set(self.count().get().saturating_sub(1));
    }
}

enum Audio {
    Start(UtteranceHeader),
    Frame(UtteranceId, UtteranceFrame),
    End(UtteranceId),
}

/// A further stream onto a call, of somebody who listens and speaks beside the client.
pub(super) struct Attached {
    pub(super) id: u64,
    messages: mpsc::Sender<TransceiverMessage>,
    waiting_bytes: Rc<Cell<usize>>,
    reader: Option<AbortHandle>,
}

impl Attached {
    /// Starts the task that sends.
    pub(super) fn start(id: u64, stream: SessionTx<TransceiverMessage>, sending: &Rc<Sending>) -> Self {
        let (messages, outgoing) = mpsc::channel(MESSAGES);
        let waiting_bytes = Rc::<Cell<usize>>::default();
        daemon::spawn_local(send_messages(stream, outgoing, Rc::clone(&waiting_bytes), Rc::clone(sending)));
        Self { id, messages, waiting_bytes, reader: None }
    }

    /// The task that reads the stream ends with it.
    pub(super) fn read_by(&mut self, reader: AbortHandle) {
        self.reader = Some(reader);
    }

    /// Queues a message. `false`: there is no room, or nobody sends any more.
    pub(super) fn message(&self, message: TransceiverMessage) -> bool {
        let waiting = self.waiting_bytes.get() + message.encoded_len();
        if waiting > MESSAGE_BYTES || self.messages.try_send(message).is_err() {
            return false;
        }
        self.waiting_bytes.set(waiting);
        true
    }

    /// The end: what is queued is still sent.
    pub(super) fn close(self, code: u32, reason: &str) {
        let close = Close { reason: reason.to_owned(), code };
        self.message(TransceiverMessage { kind: Some(transceiver_message::Kind::Close(close)) });
        if let Some(reader) = self.reader {
            reader.abort();
        }
    }
}

/// The near ends of a call's queues.
pub(super) struct CallQueues {
    messages: mpsc::Sender<TransceiverMessage>,
    /// Taken by the session stream when it opens.
    outgoing: Option<mpsc::Receiver<TransceiverMessage>>,
    waiting_bytes: Rc<Cell<usize>>,
    audio: mpsc::Sender<Audio>,
    /// Utterances up to this one are not wanted any more.
    reset: watch::Sender<u32>,
    reader: Option<AbortHandle>,
}

impl CallQueues {
    /// Starts the task of the utterances; that of the session stream starts with the stream.
    pub(super) fn start(link: Link, sending: &Rc<Sending>) -> Self {
        let (messages, outgoing) = mpsc::channel(MESSAGES);
        let (audio, utterances) = mpsc::channel(AUDIO);
        let (reset, resets) = watch::channel(0);
        daemon::spawn_local(send_utterances(link, utterances, resets, Rc::clone(sending)));
        Self { messages, outgoing: Some(outgoing), waiting_bytes: Rc::default(), audio, reset, reader: None }
    }

    /// Starts the task of the session stream. `false`: it has one already.
    pub(super) fn attach(&mut self, stream: SessionTx<TransceiverMessage>, sending: &Rc<Sending>) -> bool {
        let Some(outgoing) = self.outgoing.take() else { return false };
        let waiting_bytes = Rc::clone(&self.waiting_bytes);
        daemon::spawn_local(send_messages(stream, outgoing, waiting_bytes, Rc::clone(sending)));
        true
    }

    /// The session stream opened.
    pub(super) fn is_attached(&self) -> bool {
        self.outgoing.is_none()
    }

    /// The task that reads the session stream ends with the call.
    pub(super) fn read_by(&mut self, reader: AbortHandle) {
        self.reader = Some(reader);
    }

    /// Queues a message. `false`: there is no room, or nobody sends any more; the call cannot go on without it.
    pub(super) fn message(&mut self, message: TransceiverMessage) -> bool {
        let waiting = self.waiting_bytes.get() + message.encoded_len();
        if waiting > MESSAGE_BYTES {
            return false;
        }
        self.waiting_bytes.set(waiting);
        self.messages.try_send(message).is_ok()
    }

    /// Queues a frame. `false`: it was dropped for want of room.
    pub(super) fn frame(&mut self, utterance: UtteranceId, samples: u32, payload: Vec<u8>) -> bool {
        self.audio.capacity() > AUDIO_RESERVE
            && self.audio.try_send(Audio::Frame(utterance, UtteranceFrame { samples, payload: payload.into() })).is_ok()
    }

    /// `false`: there is no room at all.
    pub(super) fn utterance_start(&mut self, header: UtteranceHeader) -> bool {
        self.audio.try_send(Audio::Start(header)).is_ok()
    }

    /// `false`: there is no room at all.
    pub(super) fn utterance_end(&mut self, utterance: UtteranceId) -> bool {
        self.audio.try_send(Audio::End(utterance)).is_ok()
    }

    pub(super) fn utterance_reset(&mut self, utterance: UtteranceId) {
        self.reset.send_if_modified(|reset| {
            let later = utterance.0 > *reset;
            *reset = (*reset).max(utterance.0);
            later
        });
    }

    /// The call is over: its messages are still sent, its audio is not.
    pub(super) fn finish(self) {
        if let Some(reader) = self.reader {
            reader.abort();
        }
    }
}

async fn send_messages(
    mut stream: SessionTx<TransceiverMessage>,
    mut messages: mpsc::Receiver<TransceiverMessage>,
    waiting_bytes: Rc<Cell<usize>>,
    sending: Rc<Sending>,
) {
    let _counted = Counted::new(&sending, Kind::Session);
    while let Some(message) = messages.recv().await {
        waiting_bytes.set(waiting_bytes.get().saturating_sub(message.encoded_len()));
        match stream.send(&message).await {
            Ok(()) => {}
            // The stream goes on; an event is bounded far below this, so it tells of a bug of ours.
            Err(error @ StreamError::Oversize { .. }) => tracing::error!(%error, "message not sent"),
            // The reader of the other half ends the call.
            Err(_) => return,
        }
    }
    stream.finish();
}

/// One utterance after the other, each on its stream, until the call is over.
async fn send_utterances(
    link: Link,
    mut audio: mpsc::Receiver<Audio>,
    mut resets: watch::Receiver<u32>,
    sending: Rc<Sending>,
) {
    let mut open: Option<OpenUtterance> = None;
    loop {
        let up_to = *resets.borrow_and_update();
        if let Some(reset) = open.take_if(|open| open.utterance.0 <= up_to) {
            reset.stream.reset();
        }
        let next = tokio::select! {
            biased;
            changed = resets.changed() => match changed {
                Ok(()) => continue,
                Err(_) => break,
            },
            next = audio.recv() => next,
        };
        let Some(next) = next else { break };
        match next {
            Audio::Start(header) if header.utterance > up_to => {
                let counted = Counted::new(&sending, Kind::Utterance);
                let utterance = UtteranceId(header.utterance);
                // Waits only while the edge has no room for streams; the link's end ends it.
                match link.open_utterance(&header).await {
                    Ok(stream) => open = Some(OpenUtterance { utterance, stream, _counted: counted }),
                    Err(StreamError::Lost(_)) => return,
                    // Stopped within its header: the edge wants nothing of it, the next one may be another matter.
                    Err(_) => {}
                }
            }
            Audio::Frame(utterance, frame) if utterance.0 > up_to => {
                let Some(current) = open.as_mut().filter(|open| open.utterance == utterance) else { continue };
                tokio::select! {
                    biased;
                    sent = current.stream.send(&frame) => if sent.is_err() {
                        open = None;
                    },
                    // Blocked, and perhaps not wanted any more.
                    changed = resets.changed() => if changed.is_err() {
                        break;
                    },
                }
            }
            Audio::End(utterance) => {
                if let Some(ended) = open.take_if(|open| open.utterance == utterance) {
                    ended.stream.finish();
                }
            }
            Audio::Start(_) | Audio::Frame(..) => {}
        }
    }
    // The call is over in the middle of an utterance.
    if let Some(open) = open {
        open.stream.reset();
    }
}

struct OpenUtterance {
    utterance: UtteranceId,
    stream: UtteranceTx,
    _counted: Counted,
}
