//! What an edge has to know of an offer that it never sees: a page that wrote its answer itself adds it to the ufrag of the
//! answer, and the client's checks bring it here (docs/WEBRTC.md, instant connect).
//!
//! ```text
//! base64(SHA-256 fingerprint:32 | flags:1 | opus:1 | extensions:1 | stream:2 [ | tag:4 | tsn:4 ])   50 or 60 characters
//! opus := with flag 128 the answer has RED as 63, all blocks Opus:1 bit | payload type:7 bits
//! extensions := id of the audio level:4 bits | id of the mid, or with flag 128 of the transport-wide sequence number:4 bits
//! flags := 1 SPED | 2 SNAP | 4 audio | 8 client sends | 16 client receives | 32 data | 64 negotiated | 128 transport-cc
//! ```
//!
//! Big endian, the standard alphabet without padding, which is that of ICE. MESSAGE-INTEGRITY covers it, so nobody but the
//! holder of the password can say anything here, and whoever says untruth has no call.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::answer::MAX_MESSAGE_BYTES;
use super::media::Extension;
use super::offer::{Offer, Verdict};
use super::transport::Role;
use super::{AudioSetup, Fingerprint, LocalDescription, Negotiated, SctpInit, SctpSetup, Setup, SnapState};
use crate::codec::MEDIA_CLOCK;
use crate::sctp::snap::OfferedInit;
use crate::{Codec, Format, sctp};

const SPED: u8 = 1;
const SNAP: u8 = 2;
const AUDIO: u8 = 4;
const SENDS: u8 = 8;
const RECEIVES: u8 = 16;
const DATA: u8 = 32;
const NEGOTIATED: u8 = 64;
/// The page's answer has `transport-cc` and its extension, and not the mid's, of which a call with one audio line has no use.
const TRANSPORT_CC: u8 = 128;

const FINGERPRINT_BYTES: usize = 32;
const BYTES_MIN: usize = FINGERPRINT_BYTES + 5;
const BYTES_MAX: usize = BYTES_MIN + 8;

/// Window of a client that told its tag and first TSN alone: less than any browser's 5 MiB, and true from its first SACK on.
const CLIENT_WINDOW: u32 = 1 << 20;

/// Every browser takes messages of this size; a page whose browser does not posts its offer.
const CLIENT_MESSAGE_BYTES: u64 = MAX_MESSAGE_BYTES as u64;

/// RED as Chromium and Safari number it. There is no room for another number: an answer has it under this one or not at all.
const RED: Format = Format { payload_type: 63, codec: Codec::Red, clock_rate: MEDIA_CLOCK };
/// In the byte of Opus' payload type.
const HAS_RED: u8 = 128;

/// telephone-event as browsers number it: Chromium and Safari 110 and 126, Firefox 101. An answer has the first of them that
/// the offer has, in this order, or none; what it does not have is not sent.
const KEYS: [Format; 3] = [keys(110, MEDIA_CLOCK), keys(101, 8000), keys(126, 8000)];

const fn keys(payload_type: u8, clock_rate: u32) -> Format {
    Format { payload_type, codec: Codec::TelephoneEvent, clock_rate }
}

/// CN. What is known is not counted as unknown, nothing else.
const OTHER: [u8; 1] = [13];

/// The facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientFacts {
    /// SHA-256 of the client's certificate.
    pub fingerprint: [u8; 32],
    /// The offer's ice-options hold SPED, and the answer repeats them and says `setup:passive`; else it says `active`.
    pub sped: bool,
    /// The audio line.
    pub audio: Option<AudioFacts>,
    /// There is a data channel line, on SCTP port 5000 both ways.
    pub data: bool,
    /// Initiate Tag and initial TSN of the offer's `a=sctp-init`, when the answer has one.
    pub snap: Option<(u32, u32)>,
    /// The stream of the negotiated channel for events.
    pub dcid: Option<u16>,
}

/// Of the audio line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AudioFacts {
    /// Payload type of Opus.
    pub opus: u8,
    /// The answer has RED, as payload type 63.
    pub red: bool,
    /// Extension id of RFC 6464, when the answer has it.
    pub audio_level_id: Option<u8>,
    /// Extension id of the mid, when the answer has it.
    pub mid_id: Option<u8>,
    /// Extension id of the transport-wide sequence number, when the answer has it. The answer has no mid then.
    pub transport_seq_id: Option<u8>,
    /// The client sends.
    pub sends: bool,
    /// The client receives.
    pub receives: bool,
}

impl ClientFacts {
    /// Those of an offer. `None`: it says what does not fit, so it has to be posted (no Opus, another fingerprint than one SHA-256, a
    /// DTLS role that is not SPED's or the answer's choice, an extension id above 14, another SCTP port, smaller messages,
    /// `a=dcmap`, an `a=sctp-init` of no use).
    #[must_use]
    pub fn of(offer: &Offer, dcid: Option<u16>) -> Option<Self> {
        let [sha256] = offer.transport.fingerprints.as_slice() else { return None };
        let is_passive = offer.transport.role == Role::Passive;
        if sha256.hash != "sha-256" || is_passive == offer.transport.sped.is_empty() {
            return None;
        }
        let mut facts = Self {
            fingerprint: sha256.digest.as_slice().try_into().ok()?,
            sped: !offer.transport.sped.is_empty(),
            audio: None,
            data: false,
            snap: None,
            dcid: None,
        };
        for line in &offer.lines {
            match &line.verdict {
                Verdict::Audio(audio) => {
                    if audio.primary.codec != Codec::Opus {
                        return None;
                    }
                    if [audio.audio_level, audio.mid_extension].into_iter().flatten().any(|extension| extension.id > 14)
                    {
                        return None;
                    }
                    let id = |extension: Option<Extension>| extension.map(|extension| extension.id);
                    facts.audio = Some(AudioFacts {
                        opus: audio.primary.payload_type,
                        red: audio.red == Some(RED),
                        audio_level_id: id(audio.audio_level),
                        mid_id: id(audio.mid_extension.filter(|_| audio.transport_seq.is_none())),
                        transport_seq_id: id(audio.transport_seq),
                        sends: audio.direction.client_sends(),
                        receives: audio.direction.client_receives(),
                    });
                }
                Verdict::Data(data)
                    if data.port != sctp::LOCAL_PORT
                        || data.max_message_bytes < CLIENT_MESSAGE_BYTES
                        || !data.dcmaps.is_empty()
                        || data.sctp_init.as_ref().is_some_and(Option::is_none) =>
                {
                    return None;
                }
                Verdict::Data(data) => {
                    facts.data = true;
                    facts.dcid = dcid;
                    facts.snap = data.sctp_init.as_ref().and_then(|init| init.as_ref()).map(OfferedInit::tag_and_tsn);
                }
                Verdict::Inactive(_) | Verdict::Refused(_) => {}
            }
        }
        Some(facts)
    }

    /// Whether they are those of an offer of which `of` are all. An answer may leave RED out that was offered.
    #[must_use]
    pub fn fit(&self, of: &Self) -> bool {
        let red = |facts: &Self| facts.audio.is_some_and(|audio| audio.red);
        self.without_red() == of.without_red() && (red(of) || !red(self))
    }

    /// The same of an answer without RED.
    #[must_use]
    pub fn without_red(self) -> Self {
        Self { audio: self.audio.map(|audio| AudioFacts { red: false, ..audio }), ..self }
    }

    /// Reads what a client added to its ticket. `None`: not these facts, or none that a call can come of.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let mut bytes = [0; BYTES_MAX];
        let length = STANDARD_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        let (fingerprint, rest) = bytes.split_first_chunk::<FINGERPRINT_BYTES>()?;
        let (&[flags, opus, extensions, high, low], init) = rest.split_first_chunk::<5>()?;
        let has = |flag| flags & flag != 0;
        let (tag, tsn) = init.split_at_checked(4)?;
        let be32 = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let snap = if has(SNAP) { be32(tag).zip(be32(tsn)) } else { None };
        let dcid = has(NEGOTIATED).then_some(u16::from_be_bytes([high, low]));
        let id = |id| (id != 0).then_some(id);
        let audio = AudioFacts {
            opus: opus & !HAS_RED,
            red: opus & HAS_RED != 0,
            audio_level_id: id(extensions >> 4),
            mid_id: id(extensions & 15).filter(|_| !has(TRANSPORT_CC)),
            transport_seq_id: id(extensions & 15).filter(|_| has(TRANSPORT_CC)),
            sends: has(SENDS),
            receives: has(RECEIVES),
        };
        let is_whole = length == if has(SNAP) { BYTES_MAX } else { BYTES_MIN };
        // RFC 5761 §4: no payload type of RTCP's; RFC 8285 §4.2: 15 ends one-byte headers.
        let possible_type = matches!(audio.opus, 0..=63 | 96..=127) && !(audio.red && audio.opus == RED.payload_type);
        let sound = !has(AUDIO) || possible_type && extensions >> 4 != 15 && extensions & 15 != 15;
        let data = has(DATA) || !has(SNAP | NEGOTIATED);
        let told = !has(TRANSPORT_CC) || audio.transport_seq_id.is_some();
        let possible = told && has(AUDIO | DATA) && dcid != Some(u16::MAX) && snap.is_none_or(|(tag, _)| tag != 0);
        (is_whole && sound && data && possible).then_some(Self {
            fingerprint: *fingerprint,
            sped: has(SPED),
            audio: has(AUDIO).then_some(audio),
            data: has(DATA),
            snap,
            dcid,
        })
    }

    /// What a client adds to its ticket.
    #[must_use]
    pub fn write(&self) -> String {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        let mut flags = flag(self.sped, SPED) | flag(self.snap.is_some(), SNAP) | flag(self.data, DATA);
        flags |= flag(self.dcid.is_some(), NEGOTIATED);
        let (mut opus, mut extensions) = (0, 0);
        if let Some(audio) = self.audio {
            flags |= AUDIO | flag(audio.sends, SENDS) | flag(audio.receives, RECEIVES);
            opus = audio.opus | if audio.red { HAS_RED } else { 0 };
            flags |= flag(audio.transport_seq_id.is_some(), TRANSPORT_CC);
            let second = audio.transport_seq_id.or(audio.mid_id).unwrap_or(0);
            extensions = audio.audio_level_id.unwrap_or(0) << 4 | second & 15;
        }
        let mut bytes = self.fingerprint.to_vec();
        bytes.extend_from_slice(&[flags, opus, extensions]);
        bytes.extend_from_slice(&self.dcid.unwrap_or(0).to_be_bytes());
        if let Some((tag, tsn)) = self.snap {
            bytes.extend_from_slice(&tag.to_be_bytes());
            bytes.extend_from_slice(&tsn.to_be_bytes());
        }
        STANDARD_NO_PAD.encode(bytes)
    }

    /// The setup that the page's answer and its offer agree on. `local` is what its ticket says; `events` the label of a
    /// negotiated channel. `None`: the engine takes no such association.
    #[must_use]
    pub fn setup(&self, local: &LocalDescription, remote_ufrag: &str, events: &str) -> Option<Setup> {
        let sctp = if self.data {
            let mut sctp = SctpSetup::new(sctp::LOCAL_PORT, CLIENT_MESSAGE_BYTES);
            if let Some((tag, tsn)) = self.snap {
                let offered = OfferedInit::of_browser(tag, tsn, CLIENT_WINDOW)?;
                sctp.snap = Some(given(&offered, &local.sctp_init)?);
            }
            sctp.negotiated = self.dcid.map(|id| Negotiated::reliable(id, events)).into_iter().collect();
            Some(sctp)
        } else {
            None
        };
        Some(Setup {
            local_ufrag: local.ufrag.clone(),
            local_password: local.password.clone(),
            remote_ufrag: remote_ufrag.to_owned(),
            remote_password: None,
            session: local.session,
            fingerprints: vec![Fingerprint { hash: "sha-256".to_owned(), digest: self.fingerprint.to_vec() }],
            dtls_active: !self.sped,
            sped: self.sped,
            uplink: local.uplink,
            audio: self.audio.map(|audio| AudioSetup {
                // Not told, and needed for nothing.
                mid: None,
                primary: Format::opus(audio.opus),
                beside: Some(RED)
                    .filter(|_| audio.red)
                    .into_iter()
                    .chain(KEYS)
                    .filter(|format| format.payload_type != audio.opus)
                    .collect(),
                // Browsers offer it for video alone.
                nack: false,
                again: Vec::new(),
                other: OTHER.into_iter().filter(|other| *other != audio.opus).collect(),
                audio_level_id: audio.audio_level_id,
                mid_id: audio.mid_id,
                transport_seq_id: audio.transport_seq_id,
                receive: audio.sends,
                send: audio.receives,
                ssrc: local.ssrc,
                cname: local.cname(),
            }),
            sctp,
        })
    }
}

impl SctpInit {
    /// The value of `a=sctp-init` of an answer with this tag and first TSN, before there is an offer.
    #[must_use]
    pub fn value(&self) -> Option<String> {
        given(&OfferedInit::of_browser(1, 1, CLIENT_WINDOW)?, self).map(|state| state.init)
    }
}

fn given(offered: &OfferedInit, ours: &SctpInit) -> Option<SnapState> {
    let state = SnapState::answer(offered, &sctp::options(sctp::LOCAL_PORT, MAX_MESSAGE_BYTES))?;
    match ours {
        SctpInit::Given { tag, tsn } => state.with_ours(*tag, *tsn),
        SctpInit::Fresh => Some(state),
        SctpInit::Repeated(_) => None,
    }
}
