//! What workers, transceivers and clients put out, onto its wire.

use std::sync::Arc;

use ::link::ids::{SessionId, TransceiverId, UtteranceId};
use edge::directory::HandOver;
use edge::worker::Output;
use rtc::Path;
use transceiver::call::CallOutput;

use super::{LinkEnds, Parcel, World};
use crate::client::Note;
use crate::link::{Down, StreamKey, Up};
use crate::names::{EventIds, actor, event_name, transceiver_message_name};

/// RFC 8489 §5: the type of what a check begins with.
const BINDING_REQUEST: [u8; 2] = [0, 1];

impl World {
    /// Drains all workers until none has anything for another.
    pub(super) fn drain_edge(&mut self) {
        let mut busy = true;
        while busy {
            busy = false;
            for worker in 0..self.workers.len() {
                self.drain_worker(worker);
            }
            for worker in 0..self.workers.len() {
                busy |= self.empty_mailbox(worker);
            }
        }
    }

    fn drain_worker(&mut self, index: usize) {
        let mut datagram = Vec::new();
        loop {
            while let Some(path) = self.workers[index].poll_transmit(&mut datagram) {
                let caller = self.callers.iter().find(|caller| caller.client.address == path.remote);
                if let Some(caller) = caller {
                    self.sim.send(caller.down, Parcel::Datagram(path, datagram.clone()));
                }
            }
            let Some(output) = self.workers[index].poll_output() else { return };
            let name = actor("edge", index);
            match output {
                Output::HandOver { worker, path, datagram } => {
                    self.handed_over += 1;
                    self.sim.log(&name, "hands_over", format_args!("worker={worker}"));
                    let mailbox = self.edge.directory.mailbox(worker).expect("a worker of this edge");
                    mailbox.hand_over(HandOver { path, datagram });
                }
                Output::Open { transceiver, request } => {
                    let session = SessionId(request.session);
                    let ids = format_args!("{session} epoch={} transceiver={}", request.epoch, transceiver.0);
                    self.sim.log(&name, "open", ids);
                    self.send_up(index, transceiver, StreamKey::Control, Up::Open(request));
                }
                Output::Release { transceiver, request } => {
                    let session = SessionId(request.session);
                    self.sim.log(&name, "release", format_args!("{session} {}", request.reason));
                    self.send_up(index, transceiver, StreamKey::Control, Up::Release(request));
                }
                Output::Message { transceiver, session, epoch, message } => {
                    let up = Up::Message { session, epoch, message };
                    self.send_up(index, transceiver, StreamKey::Session(session, epoch), up);
                }
                Output::Datagram { transceiver, batch } => {
                    let link = self.link(index, transceiver);
                    self.sim.send(self.links[link].datagrams, Parcel::Batch(batch));
                }
                Output::Forward { peer, .. } => unreachable!("this edge has no peers, and writes to {peer:?}"),
            }
        }
    }

    fn empty_mailbox(&mut self, index: usize) -> bool {
        let (now, unix) = (self.sim.now(), self.unix());
        let edge = Arc::clone(&self.edge);
        let number = u32::try_from(index).expect("few workers");
        let mailbox = edge.directory.mailbox(number).expect("a worker of this edge");
        let mut busy = false;
        while let Some(command) = mailbox.take_command() {
            busy = true;
            self.workers[index].handle_command(now, command);
        }
        while let Some(HandOver { path, mut datagram }) = mailbox.take_hand_over() {
            busy = true;
            self.workers[index].handle_hand_over(now, unix, path, &mut datagram);
        }
        busy
    }

    pub(super) fn drain_node(&mut self, index: usize) {
        let name = self.nodes[index].name();
        let transceiver = self.nodes[index].id;
        for ((worker, slot), session, epoch, output) in self.nodes[index].drain() {
            let link = self.link(worker, transceiver);
            let stream = |utterance: UtteranceId| StreamKey::Utterance(slot, utterance);
            let epoch8 = epoch.low8();
            match output {
                CallOutput::Message(message) => {
                    self.sim.log(&name, transceiver_message_name(&message), format_args!("to {session}"));
                    let down = Down::Message { session, epoch, message };
                    self.send_down(link, StreamKey::Session(session, epoch), down);
                }
                CallOutput::UtteranceStart(header) => {
                    let stream = stream(UtteranceId(header.utterance));
                    self.send_down(link, stream, Down::UtteranceStart(header));
                }
                CallOutput::UtteranceFrame { utterance, samples, payload } => {
                    let frame = Down::UtteranceFrame { slot, epoch: epoch8, utterance, samples, payload };
                    self.send_down(link, stream(utterance), frame);
                }
                CallOutput::UtteranceEnd { utterance } => {
                    let end = Down::UtteranceEnd { slot, epoch: epoch8, utterance };
                    self.send_down(link, stream(utterance), end);
                }
                CallOutput::UtteranceReset { utterance } => {
                    let reset = Down::UtteranceReset { slot, epoch: epoch8, utterance };
                    self.send_down(link, stream(utterance), reset);
                }
                // Nobody listens beside the clients here.
                CallOutput::Event(_) => {}
                CallOutput::Ended => self.sim.log(&name, "ended", session),
            }
        }
    }

    pub(super) fn drain_client(&mut self, number: usize) {
        let (now, elapsed) = (self.sim.now(), self.sim.elapsed());
        let mut notes = std::mem::take(&mut self.notes);
        let caller = &mut self.callers[number];
        caller.client.drain(now, elapsed, &mut notes);
        while let Some((local, datagram)) = caller.client.outbox.pop_front() {
            if rtc::classify(&datagram) == rtc::Class::Stun && datagram[..2] == BINDING_REQUEST {
                caller.check.clone_from(&datagram);
            }
            if !caller.vanished {
                let path = Path::udp(local, caller.client.address);
                self.sim.send(caller.up, Parcel::Datagram(path, datagram));
            }
        }
        let name = actor("client", number);
        for note in notes.drain(..) {
            match note {
                Note::Connected => self.sim.log(&name, "connected", ""),
                Note::ChannelOpened => self.sim.log(&name, "channel_opened", ""),
                Note::Closed => self.sim.log(&name, "closed", ""),
                Note::Heard => self.sim.log(&name, "hears", ""),
                Note::Text => self.sim.log(&name, "text", ""),
                Note::Speaks => self.sim.log(&name, "speaks", ""),
                Note::Spoke => self.sim.log(&name, "spoke", ""),
                Note::Event(event) => self.sim.log(&name, event_name(&event), EventIds(&event)),
            }
        }
        self.notes = notes;
    }

    fn link(&self, worker: usize, transceiver: TransceiverId) -> usize {
        let wanted = |link: &LinkEnds| link.worker == worker && self.nodes[link.node].id == transceiver;
        self.links.iter().position(wanted).expect("a transceiver of the plan")
    }

    fn send_up(&mut self, worker: usize, transceiver: TransceiverId, stream: StreamKey, content: Up) {
        let index = self.link(worker, transceiver);
        let link = &mut self.links[index];
        let piece = link.up_streams.send(stream, content);
        self.sim.send(link.up, Parcel::Up(piece));
    }

    pub(super) fn send_down(&mut self, index: usize, stream: StreamKey, content: Down) {
        let link = &mut self.links[index];
        let piece = link.down_streams.send(stream, content);
        self.sim.send(link.down, Parcel::Down(piece));
    }
}
