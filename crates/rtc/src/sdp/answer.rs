//! Writes the answer (RFC 8829 §5.3.1) and the setup that follows from it.

use std::fmt::{self, Write as _};

use super::media::{AudioLine, DataLine, Extension};
use super::offer::{Line, Offer, OfferedFormat, Verdict};
use super::transport::Role;
use super::{
    Accepted, AudioSetup, Candidate, LocalDescription, Redundancy, SctpInit, SctpSetup, Setup, Snap, SnapState, Uplink,
};
use crate::{Codec, Format, sctp};

/// Most that libwebrtc takes a network to cost.
const NETWORK_COST_MAX: u32 = 999;
/// Ours, said in `a=max-message-size` (RFC 8841 §6).
pub(super) const MAX_MESSAGE_BYTES: usize = 256 * 1024;
/// Ours, said in `a=sctp-port`.
const SCTP_PORT: u16 = 5000;

/// What an answer says that its offer leaves open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// Of ours.
    pub(super) role: Role,
    /// DTLS inside STUN is agreed.
    pub(super) sped: bool,
    /// Of the answer, in its `o=` line.
    pub(super) version: u64,
    /// Number of the ICE session that it describes, from 1.
    pub(super) ice_session: u32,
}

pub(super) fn write(offer: &Offer, local: &LocalDescription, terms: Terms) -> Accepted {
    let mut setup = Setup {
        local_ufrag: local.ufrag.clone(),
        local_password: local.password.clone(),
        remote_ufrag: offer.transport.ufrag.clone(),
        remote_password: Some(offer.transport.password.clone()),
        session: local.session,
        fingerprints: offer.transport.fingerprints.clone(),
        dtls_active: terms.role == Role::Active,
        sped: terms.sped,
        uplink: local.uplink,
        audio: None,
        sctp: None,
    };
    let mut snap = Snap::NotOffered;
    let mut answer = Answer { offer, local, terms, text: String::with_capacity(2048) };
    answer.session();
    for (index, line) in offer.lines.iter().enumerate() {
        match &line.verdict {
            Verdict::Audio(audio) => {
                answer.audio(line, audio);
                setup.audio = Some(audio_setup(line, audio, local));
            }
            Verdict::Data(data) => {
                let state;
                (snap, state) = sctp_init(data, &local.sctp_init);
                answer.data(line, data, state.as_ref().map(|state| &*state.init));
                setup.sctp = Some(SctpSetup {
                    mid: line.mid.clone(),
                    remote_port: data.port,
                    max_message_bytes: data.max_message_bytes,
                    snap: state,
                    negotiated: data.negotiated.clone(),
                });
            }
            Verdict::Inactive(format) => answer.inactive(line, format),
            Verdict::Refused(format) => answer.refused(line, format),
        }
        if offer.shared.first() == Some(&index) {
            answer.candidates();
        }
    }
    Accepted { answer: answer.text, setup, snap }
}

/// Decides SNAP; the state is that of the association which the answer speaks of.
fn sctp_init(data: &DataLine, ours: &SctpInit) -> (Snap, Option<SnapState>) {
    let Some(offered) = &data.sctp_init else { return (Snap::NotOffered, None) };
    let options = sctp::options(data.port, MAX_MESSAGE_BYTES);
    let answered = || SnapState::answer(offered.as_ref()?, &options);
    let state = match ours {
        SctpInit::Fresh => answered(),
        SctpInit::Given { tag, tsn } => answered().and_then(|state| state.with_ours(*tag, *tsn)),
        // Another INIT is of another association, which only its own handshake sets up in place of the one agreed.
        SctpInit::Repeated(Some(agreed)) => {
            let same = offered.as_ref().is_some_and(|offered| agreed.answers(offered));
            return (if same { Snap::Answered } else { Snap::Unusable }, same.then(|| (**agreed).clone()));
        }
        SctpInit::Repeated(None) => return (Snap::NotOffered, None),
    };
    (if state.is_some() { Snap::Answered } else { Snap::Unusable }, state)
}

fn audio_setup(line: &Line, audio: &AudioLine, local: &LocalDescription) -> AudioSetup {
    AudioSetup {
        mid: line.mid.clone(),
        primary: audio.primary,
        beside: audio
            .red
            .filter(|_| local.uplink.red != Redundancy::Off)
            .into_iter()
            .chain(audio.beside.iter().copied())
            .collect(),
        nack: audio.nack,
        again: if audio.nack { audio.again.clone() } else { Vec::new() },
        other: audio.other.clone(),
        audio_level_id: audio.audio_level.map(|extension| extension.id),
        mid_id: audio.mid_extension.map(|extension| extension.id),
        transport_seq_id: audio.transport_seq.map(|extension| extension.id),
        receive: audio.direction.client_sends(),
        send: audio.direction.client_receives(),
        ssrc: local.ssrc,
        cname: local.cname(),
    }
}

impl Uplink {
    /// `a=fmtp` of Opus, behind the payload type. RFC 7587 §6.1 says what the client is to send: one channel, as everything
    /// behind this is mono; copies for what gets lost; nothing in silence; no more bits than asked for.
    #[must_use]
    pub fn opus_parameters(&self) -> String {
        let dtx = if self.dtx { ";usedtx=1" } else { "" };
        let cap = match self.max_average_bitrate {
            0 => String::new(),
            cap => format!(";maxaveragebitrate={cap}"),
        };
        format!("minptime=10;stereo=0;useinbandfec=1{dtx}{cap}")
    }
}

impl LocalDescription {
    /// The answer's candidates, without `a=`.
    pub fn candidate_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        candidates(&self.candidates, 1, |line| lines.push(line.to_string().trim_start_matches("a=").to_owned()));
        lines.retain(|line| line.starts_with("candidate:"));
        lines
    }

    /// `o=` id of the answer. RFC 8829 §5.2.1: a 64-bit number whose highest bit is zero.
    #[must_use]
    pub fn origin(&self) -> u64 {
        self.session >> 1
    }

    /// CNAME of our audio, and what stream and track are named after.
    #[must_use]
    pub fn cname(&self) -> String {
        format!("{:016x}", self.session)
    }
}

/// RFC 8839 §5.1.
///
/// `network-cost` (0 to 999) is an extension attribute of libwebrtc's, which adds it to the cost of the client's own network
/// and prefers a working pair that costs less. A client that lost the network it talks over keeps the dead pair for 3.5 s,
/// as long as packets may yet come; an ICE session that costs less than the one before is moved to as soon as it works.
/// A cellular network costs up to 500 more than Wi-Fi, other changes 10 to 250: each session costs half of the last.
pub(super) fn candidates(candidates: &[Candidate], ice_session: u32, mut line: impl FnMut(fmt::Arguments<'_>)) {
    let cost = NETWORK_COST_MAX.checked_shr(ice_session.saturating_sub(1)).unwrap_or(0);
    for (rank, candidate) in (0_u32..).zip(candidates) {
        line(format_args!("a=candidate:{} network-cost {cost}", candidate.line(rank)));
    }
    line(format_args!("a=end-of-candidates"));
}

struct Answer<'a> {
    offer: &'a Offer,
    local: &'a LocalDescription,
    terms: Terms,
    text: String,
}

impl Answer<'_> {
    fn session(&mut self) {
        let Self { offer, local, terms, .. } = *self;
        self.line(format_args!("v=0"));
        self.line(format_args!("o=- {} {} IN IP4 0.0.0.0", local.origin(), terms.version));
        self.line(format_args!("s=-"));
        self.line(format_args!("t=0 0"));
        if offer.bundled {
            let mids = offer.shared.iter().filter_map(|line| offer.lines[*line].mid.as_deref());
            let group = mids.fold("a=group:BUNDLE".to_owned(), |group, mid| group + " " + mid);
            self.line(format_args!("{group}"));
        }
        if offer.allow_mixed {
            self.line(format_args!("a=extmap-allow-mixed"));
        }
        self.line(format_args!("a=msid-semantic:WMS *"));
        self.line(format_args!("a=ice-lite"));
    }

    fn audio(&mut self, line: &Line, audio: &AudioLine) {
        let direction = audio.direction;
        // The first is what a browser sends.
        let red = audio.red.filter(|_| self.local.uplink.red != Redundancy::Off);
        let (before, behind) = if self.local.uplink.red == Redundancy::Prefer { (red, None) } else { (None, red) };
        let own = before.into_iter().chain([audio.primary]).chain(behind);
        let formats: Vec<Format> = own.chain(audio.beside.iter().copied()).collect();
        let again = audio.again.iter().filter(|_| audio.nack);
        let again: Vec<(u8, u8)> =
            again.copied().filter(|(_, apt)| formats.iter().any(|of| of.payload_type == *apt)).collect();
        let own =
            formats.iter().map(|format| format.payload_type).chain(again.iter().map(|(payload_type, _)| *payload_type));
        let payload_types: Vec<String> = own.map(|payload_type| payload_type.to_string()).collect();
        self.begin(line, format_args!("{}", payload_types.join(" ")));
        self.transport();
        self.line(format_args!("a=rtcp-mux"));
        self.line(format_args!("a={}", direction.mirrored()));
        for format in &formats {
            self.format(format, audio);
        }
        for (payload_type, apt) in again {
            let clock_rate = audio.primary.clock_rate;
            self.line(format_args!("a=rtpmap:{payload_type} rtx/{clock_rate}"));
            self.line(format_args!("a=fmtp:{payload_type} apt={apt}"));
        }
        if audio.allow_mixed {
            self.line(format_args!("a=extmap-allow-mixed"));
        }
        if audio.transport_seq.is_some() {
            self.line(format_args!("a=rtcp-fb:{} transport-cc", audio.primary.payload_type));
        }
        let extensions = [audio.audio_level, audio.mid_extension, audio.transport_seq];
        for Extension { id, uri, direction } in extensions.into_iter().flatten() {
            self.line(format_args!("a=extmap:{id}{direction} {uri}"));
        }
        if direction.client_receives() {
            // The stream's name must not be '-': browsers would attach the track to no stream, and pages that play
            // `event.streams[0]` stay silent.
            let LocalDescription { session, ssrc, .. } = *self.local;
            self.line(format_args!("a=msid:stream-{session:016x} audio-{session:016x}"));
            self.line(format_args!("a=ssrc:{ssrc} cname:{}", self.local.cname()));
        }
    }

    fn format(&mut self, &Format { payload_type, codec, clock_rate }: &Format, audio: &AudioLine) {
        let channels = if matches!(codec, Codec::Opus | Codec::Red) { "/2" } else { "" };
        self.line(format_args!("a=rtpmap:{payload_type} {}/{clock_rate}{channels}", codec.encoding()));
        if codec == Codec::Opus {
            self.line(format_args!("a=fmtp:{payload_type} {}", self.local.uplink.opus_parameters()));
        }
        if codec == Codec::Red {
            let opus = audio.primary.payload_type;
            self.line(format_args!("a=fmtp:{payload_type} {opus}/{opus}"));
        }
        if audio.nack && matches!(codec, Codec::Red | Codec::Opus | Codec::Pcmu | Codec::Pcma) {
            self.line(format_args!("a=rtcp-fb:{payload_type} nack"));
        }
    }

    fn data(&mut self, line: &Line, data: &DataLine, sctp_init: Option<&str>) {
        self.begin(line, format_args!("webrtc-datachannel"));
        self.transport();
        self.line(format_args!("a=sctp-port:{SCTP_PORT}"));
        self.line(format_args!("a=max-message-size:{MAX_MESSAGE_BYTES}"));
        if let Some(init) = sctp_init {
            self.line(format_args!("a=sctp-init:{init}"));
        }
        // RFC 8864 §6.5: a channel is accepted by saying it again.
        for map in &data.dcmaps {
            self.line(format_args!("a=dcmap:{map}"));
        }
    }

    fn inactive(&mut self, line: &Line, offered: &OfferedFormat) {
        self.begin(line, format_args!("{}", offered.format));
        self.transport();
        self.line(format_args!("a=rtcp-mux"));
        self.line(format_args!("a=inactive"));
        self.offered(offered);
    }

    /// RFC 8829 §5.3.1: port 0, and one format, as an m-line without any cannot be parsed. It is explained as it was
    /// offered, since str0m reads no dynamic payload type without its `a=rtpmap`, not even here.
    fn refused(&mut self, line: &Line, offered: &OfferedFormat) {
        self.line(format_args!("m={} 0 {} {}", line.kind, line.protocol, offered.format));
        self.line(format_args!("c=IN IP4 0.0.0.0"));
        self.mid(line);
        self.line(format_args!("a=inactive"));
        self.offered(offered);
    }

    fn offered(&mut self, offered: &OfferedFormat) {
        for (name, value) in &offered.attributes {
            self.line(format_args!("a={name}:{value}"));
        }
    }

    /// An m-line with the port and address of the first candidate (RFC 8839 §4.3.1).
    fn begin(&mut self, line: &Line, format: fmt::Arguments<'_>) {
        let default = self.local.candidates.first().map(|candidate| candidate.address);
        let port = default.map_or(9, |address| address.port());
        self.line(format_args!("m={} {port} {} {format}", line.kind, line.protocol));
        match default {
            Some(address) => {
                let family = if address.is_ipv4() { "IP4" } else { "IP6" };
                self.line(format_args!("c=IN {family} {}", address.ip()));
            }
            None => self.line(format_args!("c=IN IP4 0.0.0.0")),
        }
        self.mid(line);
    }

    fn mid(&mut self, line: &Line) {
        if let Some(mid) = &line.mid {
            self.line(format_args!("a=mid:{mid}"));
        }
    }

    /// Written under each line that shares the transport, though the first would do (RFC 9143 §7.3): clients exist that
    /// look under the line at hand only.
    fn transport(&mut self) {
        let LocalDescription { ufrag, password, fingerprint, .. } = self.local;
        self.line(format_args!("a=ice-ufrag:{ufrag}"));
        self.line(format_args!("a=ice-pwd:{}", password.expose()));
        self.line(format_args!("a=fingerprint:sha-256 {fingerprint}"));
        self.line(format_args!("a=setup:{}", self.terms.role.name()));
        if self.terms.sped && !self.offer.transport.sped.is_empty() {
            self.line(format_args!("a=ice-options:{}", self.offer.transport.sped.join(" ")));
        }
    }

    fn candidates(&mut self) {
        let local = self.local;
        let session = self.terms.ice_session;
        candidates(&local.candidates, session, |line| self.line(line));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.text.write_fmt(line);
        self.text.push_str("\r\n");
    }
}
