//! SCTP data channels (RFC 8831, 8832) over `dcsctp`, carried by DTLS.
//!
//! # Run loop
//!
//! [`Association::start`] once DTLS is connected, then [`Association::handle_packet`], [`Association::send`],
//! [`Association::handle_timeout`] at [`Association::poll_timeout`], and after each of them
//! [`Association::poll_output`] until it is empty.
//!
//! # Invariant
//!
//! A channel's outputs are Opened, messages, Closed, in this order, whatever order the packets came in. What a
//! client can make this hold is bounded: [`channels::CHANNELS_MAX`] channels, the receive window, [`EARLY_MAX`] early messages.
//!
//! # Who sends INIT
//!
//! Browsers send it as soon as their DTLS is connected. As the DTLS client we are connected half a round trip before
//! the browser, so our INIT arrives with our last flight and the association stands one round trip earlier than by
//! the browser's INIT alone; both together collide into one association (RFC 9260 §5.2.1). As the DTLS server we are
//! connected when the browser's INIT is due, and ours would only add packets.
//!
//! With SNAP ([`snap`]) nobody does: the association stands when DTLS does. A client that never got our half sends an INIT,
//! or waits for ours. As long as nothing else came of it, the ordinary handshake begins by the former; and where we would
//! have sent it, a client that is silent is asked for a sign of the association ([`PROBES`]), and gets the INIT without one.
//!
//! # Who opens a channel
//!
//! The client, by DCEP, or both by agreement (negotiated, RFC 8832 §1): those open when the association stands, so that
//! we may speak first.

mod channels;
mod heartbeat;
pub(crate) mod snap;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use dcsctp::api::{
    DcSctpSocket, ErrorKind, Message, Options, PpId, SendError, SendOptions, SocketEvent, SocketTime, StreamId,
};

use crate::sdp::{Negotiated, SctpSetup};
use crate::{ChannelId, Discard, MessageKind, SendMessageError};
use channels::{Channel, Channels};
use snap::SnapState;

/// Our side of `a=sctp-port`.
pub(crate) const LOCAL_PORT: u16 = 5000;

/// 1150 + 37 bytes of DTLS 1.2 record stay under 1200 bytes of UDP payload.
const MTU: usize = 1150;

/// Twice the largest message, so that one can arrive while one waits. A client that sends 1-byte fragments makes
/// each cost about 25 bytes of heap: 13 MB at worst.
const RECEIVE_WINDOW: usize = 512 * 1024;

/// Bytes queued towards the client; further messages are refused.
const SEND_QUEUE: usize = 2_000_000;

/// First resend of INIT and COOKIE-ECHO, without a measured round trip.
const SETUP_RESEND: Duration = Duration::from_millis(400);

/// HEARTBEATs, each [`SETUP_RESEND`] after the last, to a client that says nothing in an association that SNAP set up. All
/// lost on the way, at a fifth lost both ways, once in 20 calls that are silent for 1.6 s; the INIT that follows then only
/// begins an association anew in which nothing was received.
const PROBES: u8 = 3;

/// After an outage of 15 s the first resend follows within 3 s, not 10.
const MAX_BACKOFF: Duration = Duration::from_secs(3);

/// Messages on streams without a channel yet: an unordered message can overtake its OPEN (case C06).
const EARLY_MAX: usize = 16;

/// Bytes of those: one message of the largest size.
const EARLY_MAX_BYTES: usize = 256 * 1024;

/// How long they wait for their OPEN: two resends of dcsctp's initial 500 ms.
const EARLY_WAIT: Duration = Duration::from_secs(1);

/// RFC 8831 §8.
const PPID_DCEP: PpId = PpId(50);
const PPID_TEXT: PpId = PpId(51);
const PPID_BINARY: PpId = PpId(53);
const PPID_TEXT_EMPTY: PpId = PpId(56);
const PPID_BINARY_EMPTY: PpId = PpId(57);

/// What comes out, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Give this to DTLS.
    Packet(Vec<u8>),
    /// A channel opened.
    Opened { channel: ChannelId, label: String },
    /// A message arrived.
    Message { channel: ChannelId, kind: MessageKind, data: Vec<u8> },
    /// A channel closed.
    Closed { channel: ChannelId },
}

/// One client's association and its channels.
pub(crate) struct Association {
    /// Missing after a panic of the engine's.
    socket: Option<Box<dyn DcSctpSocket>>,
    /// When the socket wants to be woken, as of the last [`Association::call`].
    socket_timeout: Option<Instant>,
    /// Zero of the socket's time.
    epoch: Instant,
    remote_port: u16,
    connects: bool,
    /// Agreed, and nothing but INITs came yet.
    snap: Option<Box<SnapState>>,
    /// While that is so and we may have to send INIT: when the next probe is due, and how many went.
    probing: Option<(Instant, u8)>,
    negotiated: Vec<Negotiated>,
    /// Negotiated channels were opened.
    up: bool,
    /// The client's limit in bytes, 0 for none.
    send_limit: u64,
    receive_limit: usize,
    channels: Channels,
    early: Vec<Early>,
    /// Streams reset because nobody opened a channel on them.
    unopened: u64,
    outputs: VecDeque<Output>,
    /// Ports and verification tag of our packets, once the client has said which tag it wants.
    header: Option<[u8; 8]>,
}

struct Early {
    until: Instant,
    message: Message,
}

/// What both sockets of an association are made with: the short-lived one of the answer and the lasting one.
pub(crate) fn options(remote_port: u16, receive_limit: usize) -> Options {
    Options {
        local_port: LOCAL_PORT,
        remote_port,
        mtu: MTU,
        // Ours to check, with the error that names the limit.
        max_message_size: SEND_QUEUE,
        max_receiver_window_buffer_size: RECEIVE_WINDOW.max(receive_limit.saturating_mul(2)),
        max_send_buffer_size: SEND_QUEUE,
        per_stream_send_queue_limit: SEND_QUEUE,
        t1_init_timeout: SETUP_RESEND,
        t1_cookie_timeout: SETUP_RESEND,
        max_timer_backoff_duration: Some(MAX_BACKOFF),
        // Consent decides when a client is gone, not the association.
        max_retransmissions: None,
        max_init_retransmits: None,
        ..Options::default()
    }
}

impl Association {
    /// `connects`: we send INIT at the start.
    pub(crate) fn new(now: Instant, setup: &SctpSetup, receive_limit: usize, connects: bool) -> Self {
        Self {
            socket: Some(dcsctp::new_socket("", &options(setup.remote_port, receive_limit))),
            socket_timeout: None,
            epoch: now,
            remote_port: setup.remote_port,
            connects,
            snap: setup.snap.clone().map(Box::new),
            probing: None,
            negotiated: setup.negotiated.clone(),
            up: false,
            send_limit: setup.max_message_bytes,
            receive_limit,
            channels: Channels::default(),
            early: Vec::new(),
            unopened: 0,
            outputs: VecDeque::new(),
            header: None,
        }
    }

    /// DTLS is connected.
    pub(crate) fn start(&mut self, now: Instant) {
        if let Some(snap) = &self.snap {
            let state = snap.handover();
            self.header = Some(snap.header(self.remote_port));
            self.probing = self.connects.then_some((now + SETUP_RESEND, 0));
            // Refused by a socket that is not closed alone, which this one is.
            self.call(now, |socket| drop(socket.restore_from_state(&state)));
        } else if self.connects {
            self.call(now, |socket| socket.connect());
        }
        let _ = self.drain(now);
    }

    /// A later offer said how large messages may be.
    pub(crate) fn set_send_limit(&mut self, limit: u64) {
        self.send_limit = limit;
    }

    /// A later offer listed channels: `listed` are to be open, `all` are those of the call by now.
    pub(crate) fn agree(&mut self, now: Instant, all: &[Negotiated], listed: &[Negotiated]) {
        self.negotiated = all.to_vec();
        if self.up {
            for agreed in listed {
                self.open_agreed(now, agreed);
            }
        }
    }

    /// A HEARTBEAT (RFC 9260 §3.3.5), which the client answers at once. `None` before there is an association.
    pub(crate) fn heartbeat(&self) -> Option<Vec<u8>> {
        self.header.map(heartbeat::packet)
    }

    /// Takes one SCTP packet.
    pub(crate) fn handle_packet(&mut self, now: Instant, packet: &[u8]) -> Result<(), Discard> {
        let asks = snap::is_init(packet);
        if self.snap.is_some() && snap::is_abort(packet) {
            // It has no association (RFC 9260 §8.4).
            self.begin_anew(now);
            return self.drain(now);
        }
        if asks && self.snap.is_some() {
            self.forget_snap();
        }
        self.call(now, |socket| socket.handle_input(packet)).ok_or(Discard::Sctp)?;
        let result = self.drain(now);
        if result.is_ok() && !asks {
            self.snap = None;
            self.probing = None;
        }
        result
    }

    /// The client's association is not the one in which we are: what we said there it never heard.
    fn forget_snap(&mut self) {
        self.snap = None;
        self.probing = None;
        self.header = None;
        self.close_all();
        self.socket = Some(dcsctp::new_socket("", &options(self.remote_port, self.receive_limit)));
    }

    fn begin_anew(&mut self, now: Instant) {
        self.forget_snap();
        if self.connects {
            self.call(now, |socket| socket.connect());
        }
    }

    /// Asks a client that was silent so far whether the association stands, or stops asking.
    fn probe(&mut self, now: Instant) {
        let Some((_, sent)) = self.probing.filter(|(due, _)| *due <= now) else { return };
        match self.heartbeat() {
            Some(heartbeat) if sent < PROBES => {
                self.probing = Some((now + SETUP_RESEND, sent + 1));
                self.outputs.push_back(Output::Packet(heartbeat));
            }
            _ => self.begin_anew(now),
        }
    }

    /// Streams that were reset since nobody opened a channel on them.
    pub(crate) fn unopened(&self) -> u64 {
        self.unopened
    }

    /// Does what is due.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        while let Some(at) = self.early.iter().position(|early| early.until <= now) {
            let stream = self.early[at].message.stream_id;
            self.early.retain(|early| early.message.stream_id != stream);
            self.unopened += 1;
            // RFC 8831 §6.7: the way to refuse a stream.
            self.call(now, |socket| drop(socket.reset_streams(&[stream])));
        }
        self.probe(now);
        self.call(now, |_| ());
        let _ = self.drain(now);
    }

    /// When [`Association::handle_timeout`] wants to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let probe = self.probing.map(|(due, _)| due);
        self.socket_timeout.into_iter().chain(probe).chain(self.early.iter().map(|early| early.until)).min()
    }

    /// Queues a message (RFC 8831 §6.6).
    pub(crate) fn send(
        &mut self,
        now: Instant,
        channel: ChannelId,
        kind: MessageKind,
        data: &[u8],
    ) -> Result<(), SendMessageError> {
        let Some(open) = self.channels.open(channel) else { return Err(SendMessageError::NotOpen) };
        let limit = self.send_limit;
        if limit != 0 && u64::try_from(data.len()).is_ok_and(|length| length > limit) {
            return Err(SendMessageError::TooLarge { limit });
        }
        let (ppid, payload) = match (kind, data) {
            // SCTP has no empty messages: one byte stands for none (RFC 8831 §6.6).
            (MessageKind::Text, []) => (PPID_TEXT_EMPTY, vec![0]),
            (MessageKind::Binary, []) => (PPID_BINARY_EMPTY, vec![0]),
            (MessageKind::Text, data) => (PPID_TEXT, data.to_vec()),
            (MessageKind::Binary, data) => (PPID_BINARY, data.to_vec()),
        };
        let options = open.send_options();
        let message = Message::new(StreamId(channel.0), ppid, payload);
        let sent = self.call(now, |socket| socket.send(message, &options));
        let _ = self.drain(now);
        match sent {
            Some(Ok(())) => Ok(()),
            Some(Err(SendError::ResourceExhaustion | SendError::MessageTooLarge { .. })) => {
                Err(SendMessageError::QueueFull)
            }
            Some(Err(SendError::EmptyPayload | SendError::ShuttingDown)) | None => Err(SendMessageError::NotOpen),
        }
    }

    /// The next output.
    pub(crate) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Calls the engine at `now`. A panic of its costs this session its channels, not the process.
    fn call<T>(&mut self, now: Instant, call: impl FnOnce(&mut dyn DcSctpSocket) -> T) -> Option<T> {
        let socket = self.socket.as_mut()?;
        let time = SocketTime::zero() + now.saturating_duration_since(self.epoch);
        let done = catch_unwind(AssertUnwindSafe(|| {
            socket.advance_time(time);
            call(socket.as_mut())
        }));
        if done.is_err() {
            self.socket = None;
            self.close_all();
        }
        // Asked for with every frame of audio; looked up with what may have changed it.
        let timeout = self.socket.as_ref().map(|socket| socket.poll_timeout());
        self.socket_timeout =
            timeout.filter(|at| *at != SocketTime::infinite_future()).map(|at| self.epoch + (at - SocketTime::zero()));
        done.ok()
    }

    /// Takes everything out of the engine; messages first, because a reset behind them closes their channel.
    fn drain(&mut self, now: Instant) -> Result<(), Discard> {
        let mut result = Ok(());
        loop {
            if let Some(message) = self.call(now, |socket| socket.get_next_message()).flatten() {
                if let Err(discard) = self.message(now, message) {
                    result = Err(discard);
                }
                continue;
            }
            let Some(event) = self.call(now, |socket| socket.poll_event()).flatten() else { return result };
            match event {
                SocketEvent::SendPacket(packet) => {
                    if let Some(header) = packet.first_chunk().filter(|header: &&[u8; 8]| header[4..] != [0; 4]) {
                        self.header = Some(*header);
                    }
                    self.outputs.push_back(Output::Packet(packet));
                }
                SocketEvent::OnConnected() => self.open_negotiated(now),
                SocketEvent::OnIncomingStreamReset(streams) => self.reset_by_client(now, &streams),
                SocketEvent::OnStreamsResetPerformed(streams) | SocketEvent::OnStreamsResetFailed(streams) => {
                    for stream in streams {
                        self.channels.reset_done(ChannelId(stream.0));
                    }
                }
                SocketEvent::OnAborted(..) | SocketEvent::OnClosed() | SocketEvent::OnConnectionRestarted() => {
                    self.early.clear();
                    self.close_all();
                }
                SocketEvent::OnError(ErrorKind::ParseFailed, _) => result = Err(Discard::Sctp),
                _ => {}
            }
        }
    }

    /// The association stands. Messages of its first packet may be taken out before its event.
    fn open_negotiated(&mut self, now: Instant) {
        if std::mem::replace(&mut self.up, true) {
            return;
        }
        let negotiated = std::mem::take(&mut self.negotiated);
        for agreed in &negotiated {
            self.open_agreed(now, agreed);
        }
        self.negotiated = negotiated;
    }

    /// Opens a channel without DCEP, unless its stream carries one.
    fn open_agreed(&mut self, now: Instant, agreed: &Negotiated) {
        let channel = ChannelId(agreed.id);
        if self.channels.add_negotiated(channel, agreed) {
            self.outputs.push_back(Output::Opened { channel, label: agreed.label.clone() });
            self.deliver_early(now, channel);
        }
    }

    /// What came on a stream before its channel opened.
    fn deliver_early(&mut self, now: Instant, channel: ChannelId) {
        let early = std::mem::take(&mut self.early);
        let (now_open, early) = early.into_iter().partition(|early: &Early| early.message.stream_id.0 == channel.0);
        self.early = early;
        let now_open: Vec<Early> = now_open;
        for early in now_open {
            self.deliver(now, early.message);
        }
    }

    fn message(&mut self, now: Instant, message: Message) -> Result<(), Discard> {
        self.open_negotiated(now);
        if message.ppid == PPID_DCEP {
            return self.dcep(now, &message);
        }
        match self.channels.get(ChannelId(message.stream_id.0)) {
            Some(Channel::Open(_)) => self.deliver(now, message),
            // On its way out: the client is told by our reset.
            Some(Channel::Closing) => {}
            None => return self.hold(now, message),
        }
        Ok(())
    }

    /// DCEP (RFC 8832 §5, §6). An OPEN on an open channel is a client's mistake, negotiated or not: counted, and answered
    /// alike, so that its side opens as well.
    fn dcep(&mut self, now: Instant, message: &Message) -> Result<(), Discard> {
        let channel = ChannelId(message.stream_id.0);
        let Some(open) = channels::parse_open(&message.payload) else { return Ok(()) };
        let again = self.channels.open(channel).is_some();
        if !again {
            let Some(label) = self.channels.add(channel, open) else {
                self.call(now, |socket| drop(socket.reset_streams(&[message.stream_id])));
                return Ok(());
            };
            self.outputs.push_back(Output::Opened { channel, label });
        }
        let ack = Message::new(message.stream_id, PPID_DCEP, channels::ACK.to_vec());
        // RFC 8832 §6: DCEP messages are reliable and ordered, whatever the channel is.
        self.call(now, |socket| drop(socket.send(ack, &SendOptions::default())));
        self.deliver_early(now, channel);
        if again { Err(Discard::DcepAgain) } else { Ok(()) }
    }

    fn deliver(&mut self, now: Instant, message: Message) {
        let channel = ChannelId(message.stream_id.0);
        if message.payload.len() > self.receive_limit {
            // Case C04: more than we announced closes this channel alone.
            self.close(now, channel);
            return;
        }
        let (kind, data) = match message.ppid {
            PPID_TEXT => (MessageKind::Text, message.payload),
            PPID_BINARY => (MessageKind::Binary, message.payload),
            PPID_TEXT_EMPTY => (MessageKind::Text, Vec::new()),
            PPID_BINARY_EMPTY => (MessageKind::Binary, Vec::new()),
            // RFC 8831 §6.6: the deprecated partial kinds and unknown ones are not delivered.
            _ => return,
        };
        self.outputs.push_back(Output::Message { channel, kind, data });
    }

    fn hold(&mut self, now: Instant, message: Message) -> Result<(), Discard> {
        let held: usize = self.early.iter().map(|early| early.message.payload.len()).sum();
        if self.early.len() == EARLY_MAX || held + message.payload.len() > EARLY_MAX_BYTES {
            return Err(Discard::UnknownStream);
        }
        self.early.push(Early { until: now + EARLY_WAIT, message });
        Ok(())
    }

    /// RFC 8831 §6.7: a reset of the client's closes a channel and is answered by ours. An empty list is all streams.
    fn reset_by_client(&mut self, now: Instant, streams: &[StreamId]) {
        let channels: Vec<ChannelId> = match streams {
            [] => self.channels.all_open(),
            streams => streams.iter().map(|stream| ChannelId(stream.0)).collect(),
        };
        for channel in channels {
            self.early.retain(|early| early.message.stream_id.0 != channel.0);
            self.close(now, channel);
        }
    }

    /// Closes an open channel and resets our stream; one that is closing already was reset.
    fn close(&mut self, now: Instant, channel: ChannelId) {
        if self.channels.begin_close(channel) {
            self.outputs.push_back(Output::Closed { channel });
            self.call(now, |socket| drop(socket.reset_streams(&[StreamId(channel.0)])));
        }
    }

    fn close_all(&mut self) {
        self.up = false;
        for channel in self.channels.take_open() {
            self.outputs.push_back(Output::Closed { channel });
        }
    }
}
