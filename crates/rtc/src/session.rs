//! One client's WebRTC session: composes ICE, DTLS, SRTP and SCTP.
//!
//! # Who sends where
//!
//! DTLS is processed on any checked path at once and answered where it came from, never gated on nomination. Everything
//! else goes to the path that [`crate::ice`] selected; what proves a path to it is the end of the handshake, DTLS data, and
//! the newest RTP or RTCP packet of a stream. Newest, because a recorded packet that never arrived is as authentic as
//! a fresh one; of DTLS data the engine tells only that it is no replay.
//!
//! With SPED ([`crate::sped`]) DTLS comes in checks and leaves in their responses as well. What does not fit in leaves by
//! itself.
//!
//! While a new path is challenged ([`crate::ice`]), what goes to the selected one goes there as well, as far as a replayed
//! check may make us send: media by [`Session::duplicate`], reports and DTLS data by themselves.
//!
//! # Later offers
//!
//! [`Session::handle_offer`] and [`Session::handle_fragment`] change what was agreed and restart ICE. DTLS, the keys, the
//! rollover counters and the SCTP association go on.

mod downlink;
mod handshake;
mod media;
mod types;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub use downlink::DownlinkView;
pub use types::{
    ChannelId, CloseReason, Event, Input, MediaFrame, MessageKind, OutgoingFrame, Path, SendMediaError,
    SendMessageError, Stats, Transmit, Transport,
};

use crate::dtls::{self, Dtls};
use crate::ice::{self, AMPLIFICATION, Agent, CheckOutcome, Expired};
use crate::sctp::{self, Association};
use crate::sdp::{Credentials, Fragment, OfferError, Renewal, Renewed};
use crate::sped::Sped;
use crate::stun::{Check, IntegrityKey};
use crate::{Class, Codec, Discard, Identity, Offer, Setup, classify, srtp};
use handshake::{HOLD, Held, SPED_ROUND_TRIP};
use media::{Kind, Media};

/// Room for a report, or for the response to a check: 100 bytes each. A session keeps one such buffer, and none that grew for the
/// sake of a handshake.
const SMALL: usize = 128;

/// Between two SSRCs of one client that its driver is told.
const SSRC_INTERVAL: Duration = Duration::from_secs(1);

/// Timers and limits of a session.
#[derive(Debug, Clone)]
pub struct Config {
    /// Without DTLS connected for this long after creation the session ends. Defaults to 30 s.
    pub setup_timeout: Duration,
    /// Without a valid check for this long the session ends (RFC 7675). Defaults to 30 s.
    pub consent_timeout: Duration,
    /// Time between two RTCP reports of ours. Defaults to 1 s.
    pub report_interval: Duration,
    /// Largest data channel message we accept, in bytes. Defaults to 262144.
    pub max_message_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            setup_timeout: Duration::from_secs(30),
            consent_timeout: Duration::from_secs(30),
            report_interval: Duration::from_secs(1),
            max_message_bytes: 256 * 1024,
        }
    }
}

/// One client's session. See the crate's documentation for how to drive it. Not `Send`: it stays on its worker.
///
/// Kinds of methods: input ([`Session::handle_datagram`], [`Session::handle_timeout`], [`Session::send_media`],
/// [`Session::send_message`], [`Session::close`]), output ([`Session::poll_transmit`], [`Session::poll_event`],
/// [`Session::poll_held`]), the deadline ([`Session::poll_timeout`]) and queries ([`Session::stats`]). After each
/// input poll transmits and events until both are empty; the deadline holds from then on.
pub struct Session {
    config: Config,
    /// What offer and answer agreed on, for later offers.
    agreed: Box<Setup>,
    identity: Identity,
    agent: Agent,
    dtls: Dtls,
    dtls_active: bool,
    sped: Sped,
    sctp: Option<Association>,
    media: Media,
    /// Where the client's last DTLS datagram came from, while the handshake lasts.
    handshake_path: Option<Path>,
    /// Where the first check came from that was answered, and when.
    answered: Option<(Path, Instant)>,
    /// Nothing of the downlink leaves before, once a response carried our flight.
    downlink_from: Option<Instant>,
    /// What waits for that.
    held: Option<Held>,
    /// Until DTLS is connected.
    setup_deadline: Option<Instant>,
    /// From then on.
    report_deadline: Option<Instant>,
    /// The SSRC of the client's audio, and since when.
    heard_ssrc: Option<(u32, Instant)>,
    closed: bool,
    transmits: VecDeque<(Path, Vec<u8>)>,
    /// For the next report or response.
    spare: Option<Vec<u8>>,
    events: VecDeque<Event>,
    stats: Stats,
}

impl Session {
    /// Builds a session on the worker that claims it. `seed` feeds every random choice that is not a secret of DTLS
    /// (SCTP's tags and initial TSN are drawn by its library).
    #[must_use]
    pub fn new(now: Instant, setup: Setup, identity: &Identity, config: Config, seed: [u8; 32]) -> Self {
        let timings = ice::Timings { setup: config.setup_timeout, consent: config.consent_timeout };
        let key = IntegrityKey::new(setup.local_password.expose());
        let sctp =
            setup.sctp.as_ref().map(|sctp| Association::new(now, sctp, config.max_message_bytes, setup.dtls_active));
        let mut dtls = Dtls::new(now, setup.dtls_active, identity, setup.fingerprints.clone());
        if setup.sped {
            dtls.expect_round_trip(SPED_ROUND_TRIP);
        }
        Self {
            agent: Agent::new(now, key, &setup.local_ufrag, timings),
            dtls,
            dtls_active: setup.dtls_active,
            sped: Sped::new(),
            sctp,
            media: Media::new(now, setup.audio.clone(), &seed),
            handshake_path: None,
            answered: None,
            downlink_from: None,
            held: None,
            setup_deadline: Some(now + config.setup_timeout),
            report_deadline: None,
            heard_ssrc: None,
            closed: false,
            transmits: VecDeque::new(),
            spare: None,
            events: VecDeque::new(),
            stats: Stats::default(),
            agreed: Box::new(setup),
            identity: identity.clone(),
            config,
        }
    }

    /// Credentials of ours that were handed out before those of the setup, oldest first, [`crate::FORMER_MAX`] at most: the
    /// client may check with any of them, as an answer of ours may have been lost. They go as after any ICE restart.
    pub fn keep_former(&mut self, former: &[Credentials]) {
        self.agent.keep_former(former);
    }

    /// Whether a check knows a password of this session's that is valid. Changes nothing: for a driver that has to know before
    /// [`Session::handle_datagram`] does work for it.
    #[must_use]
    pub fn is_authentic(&self, check: &Check<'_>) -> bool {
        self.agent.is_authentic(check)
    }

    /// Takes one datagram of this session's; `datagram` is opened in place.
    pub fn handle_datagram<'a>(&mut self, now: Instant, path: Path, datagram: &'a mut [u8]) -> Input<'a> {
        if self.closed {
            return Input::Discarded(Discard::Closed);
        }
        let class = classify(datagram);
        if class == Class::Stun {
            return consumed(self.check(now, path, datagram));
        }
        if class != Class::Unknown && !self.agent.is_checked(path, now) {
            return Input::Discarded(Discard::UncheckedPath);
        }
        match class {
            Class::Dtls => consumed(self.handshake(now, path, datagram)),
            Class::Rtp => self.audio(now, path, datagram, Admit::Checked),
            Class::Rtcp => consumed(self.reports(now, path, datagram, Admit::Checked)),
            Class::Stun | Class::Unknown => Input::Discarded(Discard::UnknownProtocol),
        }
    }

    /// Takes an SRTP or SRTCP packet from a path that no check proved: a NAT that gave the client another port, or a client
    /// that reaches another edge. One try to open it; nothing happens unless it is fresh, authentic and the newest of its
    /// stream, which is discovery and proof in one.
    pub fn handle_stranger<'a>(&mut self, now: Instant, path: Path, datagram: &'a mut [u8]) -> Input<'a> {
        if self.closed || !self.media.started() {
            return Input::Discarded(Discard::UncheckedPath);
        }
        match classify(datagram) {
            Class::Rtp => self.audio(now, path, datagram, Admit::Newest),
            Class::Rtcp => consumed(self.reports(now, path, datagram, Admit::Newest)),
            Class::Dtls | Class::Stun | Class::Unknown => Input::Discarded(Discard::UncheckedPath),
        }
    }

    /// What became of the next packet that arrived before the keys did, oldest first. Drain after [`Event::Connected`]; a frame
    /// borrows `buffer`.
    pub fn poll_held<'a>(&mut self, now: Instant, buffer: &'a mut Vec<u8>) -> Option<Input<'a>> {
        if !self.media.take_held(now, buffer) {
            return None;
        }
        Some(match self.media.open(now, buffer, &mut self.stats) {
            Ok(opened) => opened.kind.into(),
            Err(discard) => Input::Discarded(discard),
        })
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.closed {
            return;
        }
        while let Some(expired) = self.agent.handle_timeout(now) {
            match expired {
                Expired::Path(path) => self.path_removed(path),
                Expired::Consent => return self.finish(now, CloseReason::ConsentExpired),
            }
        }
        if self.setup_deadline.is_some_and(|deadline| deadline <= now) {
            return self.finish(now, CloseReason::SetupTimeout);
        }
        self.dtls.handle_timeout(now);
        if !self.media.started() {
            self.sped.capture(self.dtls.datagrams());
        }
        if self.downlink_from.is_some_and(|from| from <= now) {
            self.release(now);
        }
        if let Some(sctp) = self.connected_sctp() {
            sctp.handle_timeout(now);
            self.stats.streams_unopened = sctp.unopened();
        }
        // Nothing was received, so there is nothing to discard.
        let _ = self.pump(now, None);
        self.request(now);
        if self.report_deadline.is_some_and(|deadline| deadline <= now) {
            self.report_deadline = Some(now + self.config.report_interval);
            let mut report = self.buffer();
            if self.media.write_report(now, &mut report) {
                self.transmit_both(now, report);
            } else {
                self.recycle(report);
            }
        }
    }

    /// The next datagram to send, written to `out` (cleared first).
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (path, datagram) = self.transmits.pop_front()?;
        out.clear();
        out.extend_from_slice(&datagram);
        self.recycle(datagram);
        Some(Transmit { path })
    }

    /// Whether there is neither an event nor a datagram to poll.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.events.is_empty() && self.transmits.is_empty()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`Session::handle_timeout`] wants to be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.closed {
            return None;
        }
        let sctp = self.sctp.as_ref().filter(|_| self.media.started()).and_then(Association::poll_timeout);
        let held = self.downlink_from.filter(|_| self.held.is_some());
        let deadlines = [
            self.agent.poll_timeout(),
            self.dtls.poll_timeout(),
            sctp,
            held,
            self.setup_deadline,
            self.report_deadline,
            self.media.poll_timeout(),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Seals one frame into `out` (cleared first) and says where to send it. Allocates nothing once `out` has room.
    ///
    /// # Errors
    /// Why it was not.
    pub fn send_media(
        &mut self,
        now: Instant,
        frame: OutgoingFrame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Path, SendMediaError> {
        let path = self.agent.selected().filter(|_| self.media.started()).ok_or(SendMediaError::NotConnected)?;
        if !self.media.sends() || !self.media.seal(now, frame, out) {
            return Err(SendMediaError::NotNegotiated);
        }
        self.stats.media_sent += 1;
        Ok(path)
    }

    /// The second path that a datagram of [`Session::send_media`] goes to, while the client may be moving there.
    pub fn duplicate(&mut self, now: Instant, bytes: usize) -> Option<Path> {
        self.agent.duplicate(now, bytes)
    }

    /// What the client's audio is coded with, both ways; `None` without an audio line.
    #[must_use]
    pub fn codec(&self) -> Option<Codec> {
        self.media.codec()
    }

    /// Takes a later offer of the client's and answers it.
    ///
    /// # Errors
    /// What in it cannot be: the call goes on as it was.
    pub fn handle_offer(&mut self, now: Instant, offer: &Offer, with: &Renewal<'_>) -> Result<Renewed, OfferError> {
        let fingerprint = self.identity.fingerprint();
        let renewed = self.agreed.renew(offer, &Renewal { fingerprint, ..*with })?;
        self.take_renewed(now, &renewed, with.fresh);
        Ok(renewed)
    }

    /// Takes an SDP fragment of the client's. `None`: it does not restart ICE, and there is nothing to answer.
    pub fn handle_fragment(&mut self, now: Instant, fragment: &Fragment, with: &Renewal<'_>) -> Option<Renewed> {
        let renewed = self.agreed.restart(fragment, with)?;
        self.take_renewed(now, &renewed, with.fresh);
        Some(renewed)
    }

    /// What offer and answer agreed on.
    #[must_use]
    pub fn agreed(&self) -> &Setup {
        &self.agreed
    }

    fn take_renewed(&mut self, now: Instant, renewed: &Renewed, fresh: &Credentials) {
        if renewed.restarted {
            self.agent.restart(fresh);
        }
        self.media.renew(&renewed.setup.audio);
        match (&mut self.sctp, &renewed.setup.sctp) {
            (Some(sctp), Some(setup)) => {
                sctp.set_send_limit(setup.max_message_bytes);
                sctp.agree(now, &setup.negotiated, &renewed.channels);
            }
            (sctp @ None, Some(setup)) => {
                let mut association =
                    Association::new(now, setup, self.config.max_message_bytes, self.agreed.dtls_active);
                if self.media.started() {
                    association.start(now);
                }
                *sctp = Some(association);
            }
            (_, None) => {}
        }
        *self.agreed = renewed.setup.clone();
        // Nothing was received, so there is nothing to discard.
        let _ = self.pump(now, None);
    }

    /// Queues a message.
    ///
    /// # Errors
    /// Why it was not.
    pub fn send_message(
        &mut self,
        now: Instant,
        channel: ChannelId,
        kind: MessageKind,
        data: &[u8],
    ) -> Result<(), SendMessageError> {
        let sctp = self.connected_sctp().ok_or(SendMessageError::NotOpen)?;
        let sent = sctp.send(now, channel, kind, data);
        let _ = self.pump(now, None);
        sent
    }

    /// Ends the session: close_notify leaves with the next transmits.
    pub fn close(&mut self, now: Instant) {
        self.finish(now, CloseReason::LocalClosed);
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// What is known of the way to the client, and of what was sent under this label, once anything is.
    #[must_use]
    pub fn downlink(&self, label: u32) -> Option<DownlinkView> {
        self.media.downlink(label)
    }

    /// RFC 8445 §7.3: a check is answered where it came from. DTLS takes what the check carries first, so that the response
    /// can carry what DTLS says to it.
    fn check(&mut self, now: Instant, path: Path, datagram: &[u8]) -> Result<(), Discard> {
        let mut response = self.buffer();
        let (sped, dtls, active) = (&mut self.sped, &mut self.dtls, self.dtls_active);
        let (mut taken, mut flight) = (None, false);
        let own = self.handshake_path.is_none_or(|own| own == path);
        let most = if own { usize::MAX } else { AMPLIFICATION * datagram.len() };
        let outcome = self.agent.handle_check(now, path, datagram, &mut response, |check, response| {
            taken = sped.handle_check(check).map(|datagram| handshake::take(now, sped, dtls, active, datagram, true));
            if sped.is_on() && active && dtls.is_untouched() {
                dtls.start(now);
                sped.capture(dtls.datagrams());
            }
            if let Some(carried) = sped.write(response, most) {
                dtls.withdraw(carried);
                flight = true;
            }
        });
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(discard) => {
                self.recycle(response);
                return Err(discard);
            }
        };
        self.transmits.push_back((path, response));
        let CheckOutcome::Answered { displaced, challenged } = outcome else { return Ok(()) };
        self.stats.checks_answered += 1;
        self.answered.get_or_insert((path, now));
        // Once what it holds is there it is not renewed: whoever replays checks would hold it for ever.
        if flight && self.held.is_none() {
            self.downlink_from = Some(now + HOLD);
        }
        let from = matches!(taken, Some(Ok(()))).then_some(path);
        if from.is_some() && !self.media.started() {
            self.handshake_path = from;
        }
        if let Some(displaced) = displaced {
            self.path_removed(displaced);
        }
        self.events.push_back(Event::PathAdded(path));
        // Behind the response, so that the client knows the pair when our ClientHello comes.
        self.dtls.start(now);
        if challenged {
            self.challenge(now);
        }
        let pumped = self.pump(now, from);
        taken.unwrap_or(Ok(())).and(pumped)
    }

    /// Asks the client for something fresh, on the path that it may have moved to: whatever it would send by itself it
    /// sends each second at best, and a client that neither speaks nor hears sends nothing.
    fn challenge(&mut self, now: Instant) {
        if let Some(heartbeat) = self.connected_sctp().and_then(|sctp| sctp.heartbeat()) {
            self.dtls.send(now, &heartbeat);
        }
    }

    fn handshake(&mut self, now: Instant, path: Path, datagram: &[u8]) -> Result<(), Discard> {
        if let Some((_, answered)) = self.answered.filter(|(first, _)| *first == path && self.dtls.is_untouched()) {
            // A client sends its first flight by itself once a response reached it: at least the round trip lies between.
            self.dtls.expect_round_trip(now.saturating_duration_since(answered));
        }
        handshake::take(now, &mut self.sped, &mut self.dtls, self.dtls_active, datagram, false)?;
        if !self.media.started() {
            self.handshake_path = Some(path);
        }
        self.pump(now, Some(path))
    }

    fn audio<'a>(&mut self, now: Instant, path: Path, datagram: &'a mut [u8], admit: Admit) -> Input<'a> {
        if !self.media.started() {
            return consumed(self.media.hold(now, datagram));
        }
        let opened = match self.media.open(now, datagram, &mut self.stats) {
            Ok(opened) => opened,
            Err(discard) => return Input::Discarded(discard),
        };
        if opened.newest {
            self.proven(now, path, admit);
        }
        self.request(now);
        if let Kind::Media(_) = opened.kind
            && opened.newest
        {
            self.note_ssrc(now, opened.ssrc);
        }
        opened.kind.into()
    }

    /// Asks for what is missing, when that is due.
    fn request(&mut self, now: Instant) {
        if self.media.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        let mut request = self.buffer();
        if self.media.write_request(now, &mut request, &mut self.stats) {
            self.transmit(self.agent.selected(), request);
        } else {
            self.recycle(request);
        }
    }

    fn reports(&mut self, now: Instant, path: Path, datagram: &mut [u8], admit: Admit) -> Result<(), Discard> {
        let opened = self.media.reports(now, datagram, &mut self.stats)?;
        if opened.newest {
            self.proven(now, path, admit);
        }
        opened.result
    }

    /// Something fresh and authentic came from `path`.
    fn proven(&mut self, now: Instant, path: Path, admit: Admit) {
        if admit == Admit::Newest {
            if let Some(displaced) = self.agent.admit(now, path) {
                self.path_removed(displaced);
            }
            self.events.push_back(Event::PathAdded(path));
        }
        self.agent.select(now, path);
        self.sped.heard();
        self.handshake_path = None;
    }

    /// A packet of the client's audio is authentic: its SSRC is the client's (RFC 3550 §5.1). A client that alternates
    /// between some is told of once per [`SSRC_INTERVAL`]: each change costs its driver a look into shared tables.
    fn note_ssrc(&mut self, now: Instant, ssrc: u32) {
        let changed = self
            .heard_ssrc
            .is_none_or(|(heard, at)| heard != ssrc && now.saturating_duration_since(at) >= SSRC_INTERVAL);
        if changed {
            self.heard_ssrc = Some((ssrc, now));
            self.events.push_back(Event::SsrcHeard(ssrc));
        }
    }

    /// Moves what DTLS and SCTP have for each other, for the client and for the driver, until both are silent.
    /// `from` is where the datagram came from that set this off.
    fn pump(&mut self, now: Instant, from: Option<Path>) -> Result<(), Discard> {
        let mut result = Ok(());
        loop {
            if let Some(output) = self.dtls.poll_output() {
                if let Err(discard) = self.dtls_output(now, from, output) {
                    result = Err(discard);
                }
            } else if let Some(output) = self.sctp.as_mut().and_then(Association::poll_output) {
                match output {
                    sctp::Output::Packet(packet) => self.dtls.send(now, &packet),
                    sctp::Output::Opened { channel, label } => {
                        self.events.push_back(Event::ChannelOpened { channel, label });
                    }
                    sctp::Output::Message { channel, kind, data } => {
                        self.events.push_back(Event::Message { channel, kind, data });
                    }
                    sctp::Output::Closed { channel } => self.events.push_back(Event::ChannelClosed { channel }),
                }
            } else {
                return result;
            }
        }
    }

    fn dtls_output(&mut self, now: Instant, from: Option<Path>, output: dtls::Output) -> Result<(), Discard> {
        match output {
            dtls::Output::Datagram(datagram) => match self.handshake_path {
                Some(path) => self.transmit(Some(path), datagram),
                None => self.transmit_both(now, datagram),
            },
            dtls::Output::Connected { version, profile, keys } => {
                let held = Held { version, profile, keys, from, data: Vec::new() };
                if self.downlink_from.is_some_and(|from| now < from) {
                    self.held = Some(held);
                } else {
                    self.connected(now, held);
                }
            }
            dtls::Output::Data(packet) => {
                return match &mut self.held {
                    Some(held) => held.keep(from, packet),
                    None => self.data(now, from, &packet),
                };
            }
            dtls::Output::Closed => self.finish(now, CloseReason::PeerClosed),
            dtls::Output::Failed(reason) => self.finish(now, reason),
        }
        Ok(())
    }

    /// The pause after our flight is over.
    fn release(&mut self, now: Instant) {
        self.downlink_from = None;
        let Some(mut held) = self.held.take() else { return };
        let data = std::mem::take(&mut held.data);
        self.connected(now, held);
        for (from, packet) in data {
            // Counted when it came; what is wrong with it now concerns nobody.
            let _ = self.data(now, from, &packet);
        }
    }

    fn connected(&mut self, now: Instant, Held { version, profile, keys, from, .. }: Held) {
        let Some(keys) = srtp::contexts(profile, &keys, self.dtls_active) else {
            return self.finish(now, CloseReason::DtlsFailed);
        };
        self.media.start(now, keys);
        if let Some(path) = from {
            self.agent.select(now, path);
        }
        self.setup_deadline = None;
        self.report_deadline = Some(now + self.config.report_interval);
        self.events.push_back(Event::Connected { version, profile, sped: self.sped.used() });
        if let Some(sctp) = &mut self.sctp {
            sctp.start(now);
        }
    }

    fn data(&mut self, now: Instant, from: Option<Path>, packet: &[u8]) -> Result<(), Discard> {
        if let Some(path) = from {
            self.proven(now, path, Admit::Checked);
        }
        self.sctp.as_mut().map_or(Err(Discard::Sctp), |sctp| sctp.handle_packet(now, packet))
    }

    fn connected_sctp(&mut self) -> Option<&mut Association> {
        self.sctp.as_mut().filter(|_| self.media.started())
    }

    fn path_removed(&mut self, path: Path) {
        self.events.push_back(Event::PathRemoved(path));
        if self.handshake_path == Some(path) {
            self.handshake_path = None;
        }
    }

    /// An empty buffer for a datagram.
    fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.spare.take().unwrap_or_else(|| Vec::with_capacity(SMALL));
        buffer.clear();
        buffer
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() == SMALL {
            self.spare.get_or_insert(buffer);
        }
    }

    fn transmit(&mut self, path: Option<Path>, datagram: Vec<u8>) {
        if let Some(path) = path {
            self.transmits.push_back((path, datagram));
        }
    }

    /// To the selected path, and to the one that is challenged.
    fn transmit_both(&mut self, now: Instant, datagram: Vec<u8>) {
        if let Some(path) = self.agent.duplicate(now, datagram.len()) {
            self.transmit(Some(path), datagram.clone());
        }
        self.transmit(self.agent.selected(), datagram);
    }

    /// The end, once.
    fn finish(&mut self, now: Instant, reason: CloseReason) {
        if self.closed {
            return;
        }
        self.closed = true;
        self.dtls.close(now);
        while let Some(output) = self.dtls.poll_output() {
            if let dtls::Output::Datagram(datagram) = output {
                self.transmit(self.agent.selected(), datagram);
            }
        }
        self.held = None;
        self.sctp = None;
        self.media.stop();
        let removed: Vec<Path> = self.agent.paths().collect();
        self.events.extend(removed.into_iter().map(Event::PathRemoved));
        self.events.push_back(Event::Closed(reason));
    }
}

/// Which paths an authentic packet may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admit {
    /// Those that a check proved.
    Checked,
    /// Any, if it is the newest of its stream.
    Newest,
}

fn consumed<'a>(result: Result<(), Discard>) -> Input<'a> {
    match result {
        Ok(()) => Input::Consumed,
        Err(discard) => Input::Discarded(discard),
    }
}
