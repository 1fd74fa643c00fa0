//! A caller on str0m: speaks from a microphone, hears packets as they arrive, reads events.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::channel::ChannelId;
use str0m::format::Codec;
use str0m::media::{Direction, MediaKind, Mid, Pt};
use str0m::net::{Protocol, Receive};
use str0m::rtp::{ExtensionValues, RtpWrite};
use str0m::{Candidate, Event, Input, Output, Rtc};
use voice::opus::{Encoder, EncoderConfig, MAX_PACKET_BYTES};

pub(crate) const FRAME: Duration = Duration::from_millis(20);
/// 20 ms at 16 kHz.
const FRAME_SAMPLES: usize = 320;
/// Close to the wrap of 16 bits, so that every call goes through it.
const FIRST_SEQ: u64 = 65_500;
/// Close to the wrap of 32 bits, likewise.
const FIRST_TIMESTAMP: u32 = u32::MAX - 100_000;

/// A packet of audio that arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// When, since the world began.
    pub at: Duration,
    /// Its place in the stream; gaps are packets that were lost.
    pub seq: u64,
    /// RTP timestamp, 48 kHz.
    pub timestamp: u64,
    /// First after silence.
    pub marker: bool,
    /// Opus.
    pub payload: Vec<u8>,
}

impl Heard {
    /// Whether it is one of the silent frames that follow sound.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.payload == [0xf8, 0xff, 0xfe]
    }
}

/// What a client did or met in one step, for the log.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Note {
    Connected,
    ChannelOpened,
    Closed,
    Heard,
    Event(Value),
    Text,
    /// The first frame of something to say left.
    Speaks,
    /// The last one did.
    Spoke,
}

/// One caller.
pub struct Client {
    rtc: Rtc,
    pub(crate) address: SocketAddr,
    mid: Mid,
    opus: Pt,
    offered: Option<(String, SdpPendingOffer)>,
    /// When it was connected.
    pub connected: Option<Duration>,
    channel: Option<ChannelId>,
    /// It is closed: by the edge, or by its own [`Client::close`].
    pub closed: bool,
    /// Everything that came on the events channel as JSON, with the time of its arrival.
    pub events: Vec<(Duration, Value)>,
    /// What came on it that is not JSON.
    pub texts: Vec<String>,
    /// Audio packets.
    pub heard: Vec<Heard>,
    /// When each frame left that something was said in.
    pub spoken: Vec<Duration>,
    pub(crate) outbox: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(crate) timeout: Instant,
    encoder: Encoder,
    microphone: VecDeque<i16>,
    next_frame: Option<Instant>,
    seq: u64,
    timestamp: u32,
}

impl Client {
    pub(crate) fn new(now: Instant, address: SocketAddr) -> Self {
        str0m::crypto::from_feature_flags().install_process_default();
        let mut rtc = Rtc::builder().set_rtp_mode(true).build(now);
        rtc.add_local_candidate(Candidate::host(address, "udp").expect("a candidate"));
        let mut change = rtc.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        change.add_channel("oai-events".to_owned());
        let (offer, pending) = change.apply().expect("something to offer");
        let opus = rtc.codec_config().find(|params| params.spec().codec == Codec::Opus).expect("Opus is offered").pt();
        let encoder = EncoderConfig { rate: 16_000, bitrate: 32_000, ..EncoderConfig::default() };
        Self {
            rtc,
            address,
            mid,
            opus,
            offered: Some((offer.to_sdp_string(), pending)),
            connected: None,
            channel: None,
            closed: false,
            events: Vec::new(),
            texts: Vec::new(),
            heard: Vec::new(),
            spoken: Vec::new(),
            outbox: VecDeque::new(),
            timeout: now,
            encoder: Encoder::new(encoder).expect("libopus runs at 16 kHz"),
            microphone: VecDeque::new(),
            next_frame: None,
            seq: FIRST_SEQ,
            timestamp: FIRST_TIMESTAMP,
        }
    }

    /// Whether its events channel is open.
    #[must_use]
    pub fn channel_is_open(&self) -> bool {
        self.channel.is_some()
    }

    /// Whether it has something left to say.
    #[must_use]
    pub fn speaks(&self) -> bool {
        !self.microphone.is_empty()
    }

    /// Types of the events so far, in order.
    #[must_use]
    pub fn event_names(&self) -> Vec<&str> {
        self.events.iter().filter_map(|(_, event)| event["type"].as_str()).collect()
    }

    /// Events of a type.
    pub fn events_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a (Duration, Value)> {
        self.events.iter().filter(move |(_, event)| event["type"] == name)
    }

    /// Packets with sound, in the order of their arrival.
    pub fn sound(&self) -> impl Iterator<Item = &Heard> {
        self.heard.iter().filter(|heard| !heard.is_silent())
    }

    /// Packets with sound that arrived in a span of time, in the order of their sending, with `None` for each that is
    /// missing between two of them.
    #[must_use]
    pub fn sound_between(&self, from: Duration, to: Duration) -> Vec<Option<&[u8]>> {
        let mut heard: Vec<&Heard> = self.heard.iter().filter(|heard| (from..to).contains(&heard.at)).collect();
        heard.sort_by_key(|heard| heard.seq);
        let last = heard.iter().rposition(|heard| !heard.is_silent()).map_or(0, |last| last + 1);
        let mut packets = Vec::new();
        let mut next = None;
        for heard in &heard[..last] {
            // What is missing beside silence was silent.
            let missing = next.filter(|_| !heard.is_silent()).map_or(0, |next| heard.seq.saturating_sub(next));
            packets.extend((0..missing).map(|_| None));
            if !heard.is_silent() {
                packets.push(Some(heard.payload.as_slice()));
            }
            next = (!heard.is_silent()).then_some(heard.seq + 1);
        }
        packets
    }

    pub(crate) fn offer(&self) -> String {
        self.offered.as_ref().map(|(offer, _)| offer.clone()).expect("an offer that is not answered")
    }

    pub(crate) fn accept(&mut self, answer: &str) {
        let (_, pending) = self.offered.take().expect("an offer that is not answered");
        let answer = SdpAnswer::from_sdp_string(answer).expect("an answer");
        self.rtc.sdp_api().accept_answer(pending, answer).expect("an answer to this offer");
    }

    pub(crate) fn say(&mut self, pcm: &[i16]) {
        self.microphone.extend(pcm);
    }

    /// Sends a text on the events channel.
    pub(crate) fn write(&mut self, text: &str) {
        let channel = self.channel.expect("an open channel");
        let mut channel = self.rtc.channel(channel).expect("an open channel");
        assert!(channel.write(false, text.as_bytes()).expect("an open channel"), "the channel is full");
    }

    pub(crate) fn close(&mut self) {
        self.rtc.disconnect();
        self.closed = true;
    }

    pub(crate) fn receive(&mut self, now: Instant, source: SocketAddr, datagram: &[u8]) {
        if self.closed {
            return;
        }
        let Ok(contents) = datagram.try_into() else { return };
        let receive = Receive { proto: Protocol::Udp, source, destination: self.address, contents };
        if self.rtc.handle_input(Input::Receive(now, receive)).is_err() {
            self.closed = true;
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let frame = if self.closed { None } else { self.next_frame };
        [(!self.closed).then_some(self.timeout), frame].into_iter().flatten().min()
    }

    /// Speaks when a frame is due, and does what str0m wants to do.
    pub(crate) fn handle_timeout(&mut self, now: Instant, elapsed: Duration, notes: &mut Vec<Note>) {
        if self.closed {
            return;
        }
        if let Some(due) = self.next_frame.filter(|due| *due <= now) {
            self.next_frame = Some(due + FRAME);
            self.frame(now, elapsed, notes);
        }
        if self.rtc.handle_input(Input::Timeout(now)).is_err() {
            self.closed = true;
        }
    }

    /// Takes what str0m has to say.
    pub(crate) fn drain(&mut self, now: Instant, elapsed: Duration, notes: &mut Vec<Note>) {
        while !self.closed {
            if !self.rtc.is_alive() {
                self.closed = true;
                notes.push(Note::Closed);
                return;
            }
            match self.rtc.poll_output() {
                Ok(Output::Timeout(at)) => {
                    self.timeout = at;
                    return;
                }
                Ok(Output::Transmit(transmit)) => {
                    self.outbox.push_back((transmit.destination, transmit.contents.to_vec()));
                }
                Ok(Output::Event(event)) => self.event(now, elapsed, event, notes),
                Err(_) => {
                    self.closed = true;
                    notes.push(Note::Closed);
                }
            }
        }
    }

    fn event(&mut self, now: Instant, elapsed: Duration, event: Event, notes: &mut Vec<Note>) {
        match event {
            Event::Connected => {
                self.connected = Some(elapsed);
                self.next_frame = Some(now);
                notes.push(Note::Connected);
            }
            Event::ChannelOpen(channel, _) => {
                self.channel = Some(channel);
                notes.push(Note::ChannelOpened);
            }
            Event::ChannelData(data) => match serde_json::from_slice::<Value>(&data.data) {
                Ok(event) => {
                    self.events.push((elapsed, event.clone()));
                    notes.push(Note::Event(event));
                }
                Err(_) => {
                    self.texts.push(String::from_utf8_lossy(&data.data).into_owned());
                    notes.push(Note::Text);
                }
            },
            Event::RtpPacket(packet) => {
                self.heard.push(Heard {
                    at: elapsed,
                    seq: *packet.seq_no,
                    timestamp: packet.time.numer(),
                    marker: packet.header.marker,
                    payload: packet.payload.to_vec(),
                });
                notes.push(Note::Heard);
            }
            _ => {}
        }
    }

    /// Sends 20 ms of the microphone, which never pauses.
    fn frame(&mut self, now: Instant, elapsed: Duration, notes: &mut Vec<Note>) {
        let says = self.speaks();
        if says && self.spoken.last().is_none_or(|last| *last + FRAME < elapsed) {
            notes.push(Note::Speaks);
        }
        let pcm: Vec<i16> = (0..FRAME_SAMPLES).map(|_| self.microphone.pop_front().unwrap_or(0)).collect();
        let mut packet = [0; MAX_PACKET_BYTES];
        let length = self.encoder.encode(&pcm, &mut packet).expect("20 ms of PCM");
        let level = ExtensionValues {
            audio_level: Some(level(&pcm)),
            voice_activity: Some(true),
            ..ExtensionValues::default()
        };
        let write = RtpWrite::new(self.opus, self.seq.into(), self.timestamp, now, &packet[..length]).ext_vals(level);
        self.seq += 1;
        self.timestamp = self.timestamp.wrapping_add(960);
        if let Some(stream) = self.rtc.direct_api().stream_tx_by_mid(self.mid, None) {
            stream.write_rtp(write);
        }
        if says {
            self.spoken.push(elapsed);
            if !self.speaks() {
                notes.push(Note::Spoke);
            }
        }
    }
}

/// RFC 6464: the level of a frame in dB relative to the loudest there is, with the noise of a quiet room in it.
fn level(pcm: &[i16]) -> i8 {
    let sum: f64 = pcm.iter().map(|sample| f64::from(*sample).powi(2)).sum();
    let mean = sum / pcm.len().max(1) as f64 / 32_768_f64.powi(2) + 1e-6;
    #[expect(clippy::cast_possible_truncation, reason = "-60 to 0")]
    let level = (10.0 * mean.log10()).round() as i8;
    level
}
