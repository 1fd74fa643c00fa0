//! What travels on the simulated link, and streams that keep their order over wires that do not.

use std::collections::BTreeMap;

use ::link::ids::{Epoch, SessionId, Slot, UtteranceId};
use ::link::proto::{EdgeMessage, OpenRequest, ReleaseRequest, TransceiverMessage, UtteranceHeader};

/// A stream of the link between one worker and one transceiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StreamKey {
    Control,
    Session(SessionId, Epoch),
    Utterance(Slot, UtteranceId),
}

/// From an edge worker, on a stream.
#[derive(Debug, Clone)]
pub(crate) enum Up {
    Open(OpenRequest),
    Release(ReleaseRequest),
    Message { session: SessionId, epoch: Epoch, message: EdgeMessage },
}

/// From a transceiver, on a stream.
#[derive(Debug, Clone)]
pub(crate) enum Down {
    Opened {
        session: SessionId,
        epoch: Epoch,
        slot: Slot,
    },
    Refused {
        session: SessionId,
        epoch: Epoch,
        reason: &'static str,
    },
    Message {
        session: SessionId,
        epoch: Epoch,
        message: TransceiverMessage,
    },
    UtteranceStart(UtteranceHeader),
    UtteranceFrame {
        slot: Slot,
        epoch: u8,
        utterance: UtteranceId,
        samples: u32,
        payload: Vec<u8>,
    },
    UtteranceEnd {
        slot: Slot,
        epoch: u8,
        utterance: UtteranceId,
    },
    /// Overtakes what the stream still holds.
    UtteranceReset {
        slot: Slot,
        epoch: u8,
        utterance: UtteranceId,
    },
}

/// A piece of a stream.
#[derive(Debug, Clone)]
pub(crate) struct Piece<T> {
    pub(crate) stream: StreamKey,
    number: u64,
    pub(crate) content: T,
}

/// All streams of one direction of one link: numbers what is sent, gives back what arrives in order.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    sent: BTreeMap<StreamKey, u64>,
    arriving: BTreeMap<StreamKey, Arriving<T>>,
}

#[derive(Debug)]
struct Arriving<T> {
    next: u64,
    early: BTreeMap<u64, T>,
    reset: bool,
}

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Self { sent: BTreeMap::new(), arriving: BTreeMap::new() }
    }
}

impl<T> Streams<T> {
    pub(crate) fn send(&mut self, stream: StreamKey, content: T) -> Piece<T> {
        let sent = self.sent.entry(stream).or_default();
        let number = *sent;
        *sent += 1;
        Piece { stream, number, content }
    }

    /// What can be read of the stream that `piece` arrived on.
    pub(crate) fn arrive(&mut self, piece: Piece<T>) -> Vec<T> {
        let new = || Arriving { next: 0, early: BTreeMap::new(), reset: false };
        let stream = self.arriving.entry(piece.stream).or_insert_with(new);
        if stream.reset {
            return Vec::new();
        }
        stream.early.insert(piece.number, piece.content);
        let mut readable = Vec::new();
        while let Some(content) = stream.early.remove(&stream.next) {
            stream.next += 1;
            readable.push(content);
        }
        readable
    }

    /// Nothing is read of this stream from here on.
    pub(crate) fn reset(&mut self, stream: StreamKey) {
        self.arriving.insert(stream, Arriving { next: 0, early: BTreeMap::new(), reset: true });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_piece_holds_up_its_own_stream_alone() {
        let mut streams = Streams::default();
        let (one, two) = (StreamKey::Control, StreamKey::Session(SessionId(1), Epoch(1)));
        let (a, b, c) = (streams.send(one, 'a'), streams.send(one, 'b'), streams.send(two, 'c'));
        assert!(streams.arrive(b).is_empty());
        assert_eq!(streams.arrive(c), ['c']);
        assert_eq!(streams.arrive(a), ['a', 'b']);
    }

    #[test]
    fn nothing_is_read_after_a_reset() {
        let mut streams = Streams::default();
        let (a, b) = (streams.send(StreamKey::Control, 'a'), streams.send(StreamKey::Control, 'b'));
        assert_eq!(streams.arrive(a), ['a']);
        streams.reset(StreamKey::Control);
        assert!(streams.arrive(b).is_empty());
    }
}
