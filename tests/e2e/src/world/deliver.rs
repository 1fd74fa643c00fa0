//! What arrives at the end of a wire.

use ::link::ids::{Epoch, SessionId};
use edge::worker::LinkInput;
use sim::Delivery;

use super::{End, Parcel, World};
use crate::link::{Down, StreamKey, Up};
use crate::names::{actor, edge_message_name, transceiver_message_name};

impl World {
    pub(super) fn deliver(&mut self, delivery: Delivery<Parcel>) {
        let (now, unix) = (self.sim.now(), self.unix());
        match (self.ends[&delivery.wire], delivery.payload) {
            (End::Edge { client }, Parcel::Datagram(path, mut datagram)) => {
                let arrival = self.callers[client].arrival;
                self.workers[arrival].handle_datagram(now, unix, path, &mut datagram);
            }
            (End::Client(client), Parcel::Datagram(path, datagram)) => {
                if !self.callers[client].vanished {
                    self.callers[client].client.receive(now, path.local, &datagram);
                    self.drain_client(client);
                }
            }
            (End::Node { link }, Parcel::Batch(batch)) => {
                let (worker, node) = (self.links[link].worker, self.links[link].node);
                for (slot, seq) in self.nodes[node].batch(now, worker, &batch) {
                    self.sim.log(&self.nodes[node].name(), "media", format_args!("slot={} seq={seq}", slot.0));
                }
                self.drain_node(node);
            }
            (End::Node { link }, Parcel::Up(piece)) => {
                for content in self.links[link].up_streams.arrive(piece) {
                    self.node_reads(link, content);
                }
            }
            (End::Worker { link }, Parcel::Down(piece)) => {
                if let Down::UtteranceReset { slot, utterance, .. } = piece.content {
                    self.links[link].down_streams.reset(StreamKey::Utterance(slot, utterance));
                    self.worker_reads(link, piece.content);
                    return;
                }
                for content in self.links[link].down_streams.arrive(piece) {
                    self.worker_reads(link, content);
                }
            }
            (end, parcel) => panic!("{parcel:?} at {end:?}"),
        }
    }

    fn node_reads(&mut self, link: usize, content: Up) {
        let now = self.sim.now();
        let (worker, index) = (self.links[link].worker, self.links[link].node);
        let node = &mut self.nodes[index];
        match content {
            Up::Open(request) => {
                let (session, epoch) = (SessionId(request.session), Epoch(request.epoch));
                let opened = node.open(now, worker, &request, self.calls.bits());
                let ids = format!("{session} epoch={}", epoch.0);
                let (event, answer) = match opened {
                    Ok(slot) => ("opened", Down::Opened { session, epoch, slot }),
                    Err(reason) => ("refused", Down::Refused { session, epoch, reason }),
                };
                self.sim.log(&self.nodes[index].name(), event, ids);
                self.send_down(link, StreamKey::Control, answer);
            }
            Up::Release(request) => {
                node.release(worker, &request);
                let session = SessionId(request.session);
                let ids = format_args!("{session} epoch={} {}", request.epoch, request.reason);
                self.sim.log(&node.name(), "released", ids);
            }
            Up::Message { session, epoch, message } => {
                self.sim.log(&node.name(), edge_message_name(&message), session);
                node.message(now, worker, (session, epoch), message);
            }
        }
        self.drain_node(index);
    }

    fn worker_reads(&mut self, link: usize, content: Down) {
        let now = self.sim.now();
        let (index, node) = (self.links[link].worker, self.links[link].node);
        let transceiver = self.nodes[node].id;
        let worker = &mut self.workers[index];
        let name = actor("edge", index);
        match content {
            Down::Opened { session, epoch, slot } => {
                self.sim.log(&name, "opened", format_args!("{session} epoch={} slot={}", epoch.0, slot.0));
                worker.handle_link(now, transceiver, LinkInput::Opened { session, epoch, slot });
            }
            Down::Refused { session, epoch, reason } => {
                self.sim.log(&name, "refused", format_args!("{session} epoch={} {reason}", epoch.0));
                worker.handle_link(now, transceiver, LinkInput::OpenFailed { session, epoch, reason });
            }
            Down::Message { session, epoch, message } => {
                self.sim.log(&name, transceiver_message_name(&message), session);
                worker.handle_link(now, transceiver, LinkInput::Message { session, epoch, message });
            }
            Down::UtteranceStart(header) => {
                let ids = format_args!("slot={} utterance={} {}", header.slot, header.utterance, header.item);
                self.sim.log(&name, "utterance", ids);
                worker.handle_link(now, transceiver, LinkInput::UtteranceStart(header));
            }
            Down::UtteranceFrame { slot, epoch, utterance, samples, payload } => {
                let payload = payload.as_slice();
                let frame = LinkInput::UtteranceFrame { slot, epoch, utterance, samples, payload };
                worker.handle_link(now, transceiver, frame);
            }
            Down::UtteranceEnd { slot, epoch, utterance } | Down::UtteranceReset { slot, epoch, utterance } => {
                let ids = format_args!("slot={} utterance={}", slot.0, utterance.0);
                self.sim.log(&name, "utterance_end", ids);
                worker.handle_link(now, transceiver, LinkInput::UtteranceEnd { slot, epoch, utterance });
            }
        }
    }
}
