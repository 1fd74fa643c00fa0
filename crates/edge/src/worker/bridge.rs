//! What transceivers say, and what becomes of their sessions.

use std::time::Instant;

use link::datagram::MediaUp;
use link::grpc::TICKET_USED;
use link::ids::{Epoch, SessionId, Slot, TransceiverId, UtteranceId};
use link::proto::{ReleaseRequest, TransceiverMessage, UtteranceHeader, transceiver_message};
use rtc::{ChannelId, MessageKind};

use super::Worker;
use super::clients::Key;
use super::io::Output;
use super::remote::{Remote, State};
use super::stats::{CloseCause, Discard};

/// From the link to a transceiver.
#[derive(Debug)]
pub enum LinkInput<'a> {
    /// Open succeeded and the session stream is open.
    Opened {
        /// Which session.
        session: SessionId,
        /// At which epoch.
        epoch: Epoch,
        /// Its number on the connection.
        slot: Slot,
    },
    /// Open was refused, or did not come through.
    OpenFailed {
        /// Which session.
        session: SessionId,
        /// At which epoch.
        epoch: Epoch,
        /// For the log, and to tell a used ticket.
        reason: &'a str,
    },
    /// A message of the session stream.
    Message {
        /// Which session.
        session: SessionId,
        /// At which epoch.
        epoch: Epoch,
        /// What.
        message: TransceiverMessage,
    },
    /// An utterance stream opened.
    UtteranceStart(UtteranceHeader),
    /// A frame of an utterance stream.
    UtteranceFrame {
        /// Which session.
        slot: Slot,
        /// Low byte of the epoch in the stream's header.
        epoch: u8,
        /// Which utterance.
        utterance: UtteranceId,
        /// 48 kHz samples.
        samples: u32,
        /// One Opus packet.
        payload: &'a [u8],
    },
    /// An utterance stream ended, by its end or by a reset.
    UtteranceEnd {
        /// Which session.
        slot: Slot,
        /// Low byte of the epoch in the stream's header.
        epoch: u8,
        /// Which utterance.
        utterance: UtteranceId,
    },
    /// A frame that came by datagram.
    Direct(MediaUp<'a>),
    /// A datagram that is no batch of frames, or the rest of one.
    Malformed,
    /// How the path to the transceiver is to be used.
    Path {
        /// Each frame goes twice.
        repeat: bool,
    },
    /// More of the client's messages wait for the session stream than may.
    Backlog {
        /// Which session.
        session: SessionId,
        /// At which epoch.
        epoch: Epoch,
    },
    /// The session stream broke.
    SessionLost {
        /// Which session.
        session: SessionId,
        /// At which epoch.
        epoch: Epoch,
    },
    /// The connection to the transceiver broke.
    LinkLost,
}

impl Worker {
    /// Takes what came over the link to `transceiver`.
    pub fn handle_link(&mut self, now: Instant, transceiver: TransceiverId, input: LinkInput<'_>) {
        self.now = now;
        let touched = match input {
            LinkInput::Opened { session, epoch, slot } => self.opened(now, transceiver, session, epoch, slot),
            LinkInput::OpenFailed { session, epoch, reason } => {
                self.io.stats.opens_failed += 1;
                let key = self.find(transceiver, session, epoch);
                match key {
                    Some(key) if reason.contains(TICKET_USED) => self.ticket_used(now, key),
                    Some(key) => self.open_failed(now, key),
                    None => {}
                }
                key
            }
            LinkInput::Message { session, epoch, message } => {
                let key = self.find(transceiver, session, epoch);
                if let Some(key) = key {
                    self.message(now, key, message);
                }
                key
            }
            LinkInput::UtteranceStart(header) => {
                let utterance = header.utterance;
                let epoch = Epoch(header.epoch).low8();
                self.at_slot(transceiver, Slot(header.slot), epoch, |remote| {
                    remote.playout.start(now, utterance, header.first_sample);
                })
            }
            LinkInput::UtteranceFrame { slot, epoch, utterance, samples, payload } => {
                let key = self.at_slot(transceiver, slot, epoch, |remote| {
                    remote.playout.push(now, utterance.0, samples, payload);
                });
                if key.is_none() {
                    self.io.stats.stale_frames += 1;
                }
                key
            }
            LinkInput::UtteranceEnd { slot, epoch, utterance } => {
                self.at_slot(transceiver, slot, epoch, |remote| remote.playout.end(now, utterance.0))
            }
            LinkInput::Direct(frame) => match self.direct(now, transceiver, &frame) {
                Some(key) => Some(key),
                None => {
                    self.io.stats.stale_frames += 1;
                    return;
                }
            },
            LinkInput::Malformed => {
                self.io.stats.discard(Discard::LinkMalformed);
                return;
            }
            LinkInput::Path { repeat } => {
                self.io.set_repeat(transceiver, repeat);
                return;
            }
            LinkInput::Backlog { session, epoch } => {
                let key = self.find(transceiver, session, epoch);
                if let Some(key) = key {
                    let message =
                        "Your messages come faster than they are taken; connect again, and send less at once.";
                    self.lost(now, key, CloseCause::Backlog, "rate_limit_exceeded", message);
                }
                key
            }
            LinkInput::SessionLost { session, epoch } => {
                let key = self.find(transceiver, session, epoch);
                if let Some(key) = key {
                    self.transceiver_lost(now, key);
                }
                key
            }
            LinkInput::LinkLost => {
                self.link_lost(now, transceiver);
                return;
            }
        };
        match touched {
            Some(key) => self.service(now, key),
            None => self.io.stats.link_strays += 1,
        }
    }

    fn opened(
        &mut self,
        now: Instant,
        transceiver: TransceiverId,
        session: SessionId,
        epoch: Epoch,
        slot: Slot,
    ) -> Option<Key> {
        let key = self.find(transceiver, session, epoch);
        let remote = key.and_then(|key| self.clients.get_mut(key)?.remote());
        let (Some(key), Some(remote)) = (key, remote.filter(|r| r.state() == State::Opening)) else {
            // The session ended, or moved on, while Open was on its way: nobody will use that seat.
            let reason = "not_wanted".to_owned();
            let request = ReleaseRequest { session: session.0, epoch: epoch.0, reason };
            self.io.output(Output::Release { transceiver, request });
            return None;
        };
        remote.opened(now, slot, &mut self.io);
        self.slots.insert((transceiver, slot), key);
        Some(key)
    }

    fn direct(&mut self, now: Instant, transceiver: TransceiverId, frame: &MediaUp<'_>) -> Option<Key> {
        let key = *self.slots.get(&(transceiver, frame.slot))?;
        let Self { clients, io, .. } = self;
        let client = clients.get_mut(key)?;
        let heard = client.remote()?.epoch().low8() == frame.epoch;
        (heard && client.direct(now, frame, io)).then_some(key)
    }

    fn open_failed(&mut self, now: Instant, key: Key) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let call = client.call.clone();
        let Some(remote) = client.remote().filter(|r| r.state() == State::Opening) else { return };
        if !remote.open_failed(now, &call, &mut self.io) {
            let message = "No transceiver could take this call; try again.";
            client.fail(now, CloseCause::OpenFailed, "no_capacity", message, &mut self.io);
        }
    }

    /// The transceiver has had a call of this ticket, which this edge does not know of: it was started again since.
    fn ticket_used(&mut self, now: Instant, key: Key) {
        let Some(client) = self.clients.get_mut(key) else { return };
        if let Some(remote) = client.remote() {
            remote.lost();
        }
        let message = "The ticket of this call was used; connect without it.";
        client.fail(now, CloseCause::TicketUsed, TICKET_USED, message, &mut self.io);
    }

    fn message(&mut self, now: Instant, key: Key, message: TransceiverMessage) {
        let Some(client) = self.clients.get_mut(key) else { return };
        match message.kind {
            Some(transceiver_message::Kind::ChannelMessage(message)) => {
                let kind = if message.binary { MessageKind::Binary } else { MessageKind::Text };
                match u16::try_from(message.channel) {
                    Ok(id) => client.send_message(now, ChannelId(id), kind, &message.data, &mut self.io),
                    Err(_) => self.io.stats.messages_refused += 1,
                }
            }
            Some(transceiver_message::Kind::Pause(_)) => {
                if let Some(remote) = client.remote() {
                    remote.pause(now);
                }
            }
            Some(transceiver_message::Kind::Resume(resume)) => {
                if let Some(remote) = client.remote() {
                    remote.resume(now, resume.from);
                }
            }
            Some(transceiver_message::Kind::Reflex(settings)) => {
                if let Some(remote) = client.remote() {
                    remote.set_reflex(settings);
                }
            }
            Some(transceiver_message::Kind::Clip(clip)) => {
                if let Some(remote) = client.remote() {
                    remote.clip(now, clip);
                }
            }
            Some(transceiver_message::Kind::Flush(flush)) => {
                if let Some(remote) = client.remote() {
                    remote.flush(now, flush.up_to);
                }
            }
            Some(transceiver_message::Kind::Close(_)) => client.end_soon(now, CloseCause::TransceiverClosed),
            None => self.io.stats.link_strays += 1,
        }
    }

    fn transceiver_lost(&mut self, now: Instant, key: Key) {
        let message = "The conversation was lost on the server's side; connect again.";
        self.lost(now, key, CloseCause::TransceiverLost, "transceiver_lost", message);
    }

    /// The session stream is no more, and so the call neither.
    fn lost(&mut self, now: Instant, key: Key, cause: CloseCause, code: &'static str, message: &'static str) {
        let Some(client) = self.clients.get_mut(key) else { return };
        let Some(remote) = client.remote() else { return };
        if let Some(slot) = remote.slot() {
            self.slots.remove(&(remote.transceiver(), slot));
        }
        remote.lost();
        client.fail(now, cause, code, message, &mut self.io);
    }

    fn link_lost(&mut self, now: Instant, transceiver: TransceiverId) {
        for key in self.clients.keys() {
            let remote = self.clients.get_mut(key).and_then(|client| client.remote());
            let state = remote.filter(|r| r.transceiver() == transceiver).map(|r| r.state());
            match state {
                Some(State::Opening) => self.open_failed(now, key),
                Some(State::Open(_)) => self.transceiver_lost(now, key),
                Some(State::Waiting(_) | State::Ended) | None => continue,
            }
            self.service(now, key);
        }
    }

    /// The session, if it is heard by `transceiver` at this epoch: whatever another one says is stale.
    fn find(&mut self, transceiver: TransceiverId, session: SessionId, epoch: Epoch) -> Option<Key> {
        let key = *self.by_id.get(&session)?;
        let remote = self.clients.get_mut(key)?.remote()?;
        (remote.transceiver() == transceiver && remote.epoch() == epoch).then_some(key)
    }

    /// Applies something to the session at a slot, if the epoch is the one that is heard.
    fn at_slot(
        &mut self,
        transceiver: TransceiverId,
        slot: Slot,
        epoch: u8,
        apply: impl FnOnce(&mut Remote),
    ) -> Option<Key> {
        let key = *self.slots.get(&(transceiver, slot))?;
        let remote = self.clients.get_mut(key)?.remote().filter(|r| r.epoch().low8() == epoch)?;
        apply(remote);
        Some(key)
    }
}
