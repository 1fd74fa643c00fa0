//! What an audio or data channel line offers, and why it cannot be used if it cannot.

use std::time::Duration;

use super::text::{Attribute, Media, find};
use super::{NEGOTIATED_MAX, Negotiated, OfferError};
use crate::sctp::snap::OfferedInit;
use crate::{Codec, Format};

const AUDIO_LEVEL: &str = "urn:ietf:params:rtp-hdrext:ssrc-audio-level";
/// What libwebrtc calls it, until an RFC does.
const TRANSPORT_SEQ: &str = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
const MID: &str = "urn:ietf:params:rtp-hdrext:sdes:mid";

/// RFC 8841 §6.1: the limit of a client that names none.
const MAX_MESSAGE_BYTES_DEFAULT: u64 = 65536;
/// RFC 8841 §5: the port of WebRTC data channels, should a client name none.
const SCTP_PORT_DEFAULT: u16 = 5000;

/// A usable audio line.
#[derive(Debug, Clone)]
pub(super) struct AudioLine {
    pub(super) primary: Format,
    pub(super) beside: Vec<Format>,
    /// Of the primary's packets.
    pub(super) red: Option<Format>,
    pub(super) nack: bool,
    /// Retransmission and what it repeats.
    pub(super) again: Vec<(u8, u8)>,
    /// Known, of no interest.
    pub(super) other: Vec<u8>,
    pub(super) audio_level: Option<Extension>,
    pub(super) mid_extension: Option<Extension>,
    /// Transport-wide sequence numbers on what we send, and feedback about it; both were offered.
    pub(super) transport_seq: Option<Extension>,
    pub(super) direction: Direction,
    /// `a=extmap-allow-mixed` under this line.
    pub(super) allow_mixed: bool,
}

/// A usable data channel line.
#[derive(Debug, Clone)]
pub(super) struct DataLine {
    pub(super) port: u16,
    pub(super) max_message_bytes: u64,
    /// `a=sctp-init`, and whether it can be used.
    pub(super) sctp_init: Option<Option<OfferedInit>>,
    pub(super) negotiated: Vec<Negotiated>,
    /// Values of the `a=dcmap` that tell them.
    pub(super) dcmaps: Vec<String>,
}

/// A header extension (RFC 8285 §5).
#[derive(Debug, Clone, Copy)]
pub(super) struct Extension {
    pub(super) id: u8,
    pub(super) uri: &'static str,
    /// Behind the id in the answer: nothing, `/recvonly` for what was offered as `/sendonly`, `/sendonly` for what we alone send.
    pub(super) direction: &'static str,
}

/// Of the client's media (RFC 8866 §6.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    SendRecv,
    SendOnly,
    RecvOnly,
    Inactive,
}

impl Direction {
    pub(super) fn client_sends(self) -> bool {
        matches!(self, Self::SendRecv | Self::SendOnly)
    }

    pub(super) fn client_receives(self) -> bool {
        matches!(self, Self::SendRecv | Self::RecvOnly)
    }

    /// The attribute that answers it.
    pub(super) fn mirrored(self) -> &'static str {
        match self {
            Self::SendRecv => "sendrecv",
            Self::SendOnly => "recvonly",
            Self::RecvOnly => "sendonly",
            Self::Inactive => "inactive",
        }
    }
}

/// Why a line is not taken.
#[derive(Debug, Clone)]
pub(super) enum Unusable {
    /// Well formed, but nothing here can use it. May be answered inactive.
    Unwanted(OfferError),
    /// Cannot share our transport at all: refused with port 0 wherever it stands.
    Broken(OfferError),
}

/// Reads an audio line. `multiplexed`: the line it shares a transport with says rtcp-mux for it.
pub(super) fn audio(session: &[Attribute<'_>], media: &Media<'_>, multiplexed: bool) -> Result<AudioLine, Unusable> {
    if !is_secure_rtp(media.protocol) {
        let problem = format!("names the protocol {}", media.protocol);
        let fix = "offer UDP/TLS/RTP/SAVPF, which is DTLS-SRTP";
        return Err(Unusable::Broken(OfferError::new(media.line, "m=audio", &problem, fix)));
    }
    if !multiplexed && media.find("rtcp-mux").is_none() {
        let fix = "offer RTP and RTCP on one port (RFC 5761)";
        return Err(Unusable::Broken(OfferError::new(media.line, "a=rtcp-mux", "is required and missing", fix)));
    }

    let Some(Formats { primary, beside, red, again, other }) = Formats::of(media) else {
        let fix = "offer a=rtpmap:<payload type> opus/48000/2, or PCMU or PCMA, with a payload type of 0-63 or 96-127 named \
                   in the m-line";
        return Err(Unusable::Unwanted(OfferError::new(media.line, "a=rtpmap", "names no usable audio codec", fix)));
    };

    let allow_mixed = media.find("extmap-allow-mixed").is_some();
    let id_max = if allow_mixed || find(session, "extmap-allow-mixed").is_some() { 255 } else { 14 };
    let extension = |uri| extension(session, media, uri, id_max);
    let receives = direction(session, media).client_receives();
    // We send it in one-byte headers alone, and none but its feedback gives it a use.
    let transport_seq = outgoing(session, media, TRANSPORT_SEQ)
        .filter(|_| receives && has_feedback(media, primary.payload_type, "transport-cc"));
    Ok(AudioLine {
        primary,
        beside,
        red,
        nack: has_nack(media, primary.payload_type),
        again,
        other,
        audio_level: extension(AUDIO_LEVEL),
        mid_extension: extension(MID),
        transport_seq,
        direction: direction(session, media),
        allow_mixed,
    })
}

/// What becomes of the payload types of an audio line.
struct Formats {
    primary: Format,
    beside: Vec<Format>,
    red: Option<Format>,
    again: Vec<(u8, u8)>,
    other: Vec<u8>,
}

impl Formats {
    /// The first Opus, or the first G.711 where there is none. Beside it the client may send keys on the clock of its audio
    /// (RFC 4733 §2.1), copies (RFC 2198 §5: all blocks Opus), what is sent again (RFC 4588 §8.6), and G.711 of the other law.
    fn of(media: &Media<'_>) -> Option<Self> {
        let (mut formats, mut other, mut repeats) = (Vec::new(), Vec::new(), Vec::new());
        let mut codecs = codecs(media);
        for payload_type in media.formats.iter().filter_map(|format| payload_type(format)) {
            // Taken out, so that a format listed again costs nothing.
            let Some((name, clock)) = codecs[usize::from(payload_type)].take() else { continue };
            let clock_rate = clock.parse().unwrap_or(0);
            if let Some(codec) = Codec::named(name, clock_rate) {
                formats.push(Format { payload_type, codec, clock_rate });
            } else if name.eq_ignore_ascii_case("rtx") {
                repeats.extend(fmtp(media, payload_type).and_then(apt).map(|apt| (payload_type, apt)));
            } else if name.eq_ignore_ascii_case("CN") {
                other.push(payload_type);
            }
        }
        let first = |wanted: &[Codec]| formats.iter().copied().find(|format| wanted.contains(&format.codec));
        let primary = first(&[Codec::Opus]).or_else(|| first(&[Codec::Pcmu, Codec::Pcma]))?;
        let copies_primary = |red: &&Format| {
            let blocks = fmtp(media, red.payload_type).unwrap_or_default();
            !blocks.is_empty() && blocks.split('/').all(|block| block.trim().parse() == Ok(primary.payload_type))
        };
        let is_red = |format: &&Format| format.codec == Codec::Red && primary.codec == Codec::Opus;
        let red = formats.iter().filter(is_red).find(copies_primary).copied();
        let mut beside: Vec<Format> = Vec::new();
        for format in &formats {
            let again = beside.iter().any(|taken| taken.codec == format.codec);
            let wanted = match format.codec {
                Codec::Opus | Codec::Red => false,
                Codec::Pcmu | Codec::Pcma => primary.codec != Codec::Opus && format.codec != primary.codec,
                Codec::TelephoneEvent => format.clock_rate == primary.clock_rate || !has_events_at(&formats, primary),
            };
            if wanted && !again {
                beside.push(*format);
            } else if format.codec == Codec::TelephoneEvent {
                other.push(format.payload_type);
            }
        }
        let taken =
            |(_, apt): &(u8, u8)| primary.payload_type == *apt || red.is_some_and(|red| red.payload_type == *apt);
        let again = repeats.into_iter().filter(taken).collect();
        Some(Self { primary, beside, red, again, other })
    }
}

/// What `a=fmtp` says of a payload type.
fn fmtp<'a>(media: &Media<'a>, payload_type: u8) -> Option<&'a str> {
    let fmtps = media.attributes.iter().filter(|attribute| attribute.name == "fmtp");
    fmtps
        .filter_map(|attribute| attribute.value.split_once(' '))
        .find_map(|(of, parameters)| (of.parse() == Ok(payload_type)).then_some(parameters.trim()))
}

/// RFC 4588 §8.6: what a retransmission repeats.
fn apt(parameters: &str) -> Option<u8> {
    parameters.split(';').find_map(|parameter| parameter.trim().strip_prefix("apt=")?.trim().parse().ok())
}

/// `a=rtcp-fb:<payload type or *> nack` (RFC 4585 §4.2). `nack pli` and the like ask for something else.
fn has_nack(media: &Media<'_>, payload_type: u8) -> bool {
    let feedback = media.attributes.iter().filter(|attribute| attribute.name == "rtcp-fb");
    feedback
        .filter_map(|attribute| attribute.value.split_once(' '))
        .any(|(of, what)| (of == "*" || of.parse() == Ok(payload_type)) && what.trim().eq_ignore_ascii_case("nack"))
}

/// Whether there is telephone-event on the clock of `audio`.
fn has_events_at(formats: &[Format], audio: Format) -> bool {
    formats.iter().any(|format| format.codec == Codec::TelephoneEvent && format.clock_rate == audio.clock_rate)
}

/// Reads a data channel line.
pub(super) fn data(media: &Media<'_>) -> Result<DataLine, Unusable> {
    let protocol = media.protocol.to_ascii_uppercase();
    if !protocol.ends_with("/DTLS/SCTP") || !media.formats[0].eq_ignore_ascii_case("webrtc-datachannel") {
        let problem = format!("offers {} {}", media.protocol, media.formats[0]);
        let fix = "offer m=application 9 UDP/DTLS/SCTP webrtc-datachannel";
        return Err(Unusable::Broken(OfferError::new(media.line, "m=application", &problem, fix)));
    }
    let port = match media.find("sctp-port") {
        None => SCTP_PORT_DEFAULT,
        Some(Attribute { line, value, .. }) => value.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
            let fix = "send a=sctp-port:5000";
            Unusable::Broken(OfferError::new(line, "a=sctp-port", "is not a number from 1 to 65535", fix))
        })?,
    };
    let max_message_bytes = media
        .find("max-message-size")
        .and_then(|attribute| attribute.value.parse().ok())
        .unwrap_or(MAX_MESSAGE_BYTES_DEFAULT);
    let sctp_init = media.find("sctp-init").map(|attribute| OfferedInit::read(attribute.value));
    let (mut negotiated, mut dcmaps) = (Vec::<Negotiated>::new(), Vec::new());
    for map in media.attributes.iter().filter(|attribute| attribute.name == "dcmap") {
        let refuse = |problem| {
            let fix = r#"send at most 16 of a=dcmap:<stream 0-65534> label="...""#;
            Unusable::Broken(OfferError::new(map.line, "a=dcmap", problem, fix))
        };
        let channel = dcmap(map.value).ok_or_else(|| refuse("cannot be read"))?;
        if negotiated.iter().any(|other| other.id == channel.id) {
            return Err(refuse("names a stream twice"));
        }
        if negotiated.len() == NEGOTIATED_MAX {
            return Err(refuse("is one of too many"));
        }
        negotiated.push(channel);
        dcmaps.push(map.value.to_owned());
    }
    Ok(DataLine { port, max_message_bytes, sctp_init, negotiated, dcmaps })
}

/// `<stream>[ <name>=<value>;...]` (RFC 8864 §5.1). Names that are not known are ignored, as its §5.1.2 demands.
fn dcmap(value: &str) -> Option<Negotiated> {
    let (id, rest) = value.split_once(' ').unwrap_or((value, ""));
    let id = id.parse().ok().filter(|id| *id != u16::MAX)?;
    let mut channel = Negotiated::reliable(id, "");
    let mut rest = rest.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => after.split_at(after.find(';').unwrap_or(after.len())),
        };
        match name.trim() {
            // Quotes, '%' and control characters are written %XX there.
            "label" => channel.label = unescaped(value)?,
            "ordered" => channel.unordered = !value.parse::<bool>().ok()?,
            "max-retr" => channel.max_retransmissions = Some(value.parse().ok()?),
            "max-time" => channel.lifetime = Some(Duration::from_millis(value.parse::<u32>().ok()?.into())),
            _ => {}
        }
        rest = after.strip_prefix(';').unwrap_or(after).trim();
    }
    (channel.max_retransmissions.is_none() || channel.lifetime.is_none()).then_some(channel)
}

/// Text in which %XX stands for a byte.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(part.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

/// Whether RTP of this protocol can be keyed by DTLS. Old clients write `RTP/SAVPF` (RFC 8829 §5.1.2).
fn is_secure_rtp(protocol: &str) -> bool {
    let protocol = protocol.to_ascii_uppercase();
    protocol.ends_with("RTP/SAVPF") || protocol.ends_with("RTP/SAVP")
}

/// A payload type that RTP and RTCP on one port leave free (RFC 5761 §4): 64-95 would be taken for RTCP.
fn payload_type(format: &str) -> Option<u8> {
    format.parse().ok().filter(|payload_type| matches!(payload_type, 0..=63 | 96..=127))
}

/// Encoding name and clock rate that `a=rtpmap` gives to each payload type; of several lines the first counts. Those of
/// RFC 3551 §6 need none.
fn codecs<'a>(media: &Media<'a>) -> [Option<(&'a str, &'a str)>; 128] {
    let mut codecs = [None; 128];
    for attribute in media.attributes.iter().filter(|attribute| attribute.name == "rtpmap") {
        let Some((payload_type, encoding)) = attribute.value.split_once(' ') else { continue };
        let mut fields = encoding.trim().split('/');
        let Some(codec) = fields.next().zip(fields.next()) else { continue };
        if let Some(place) = payload_type.parse().ok().and_then(|at: usize| codecs.get_mut(at)) {
            place.get_or_insert(codec);
        }
    }
    for (payload_type, name) in [(0, "PCMU"), (8, "PCMA"), (13, "CN")] {
        codecs[payload_type].get_or_insert((name, "8000"));
    }
    codecs
}

/// An extension that the client may send and whose id fits the headers that may come.
fn extension(session: &[Attribute<'_>], media: &Media<'_>, uri: &'static str, id_max: u8) -> Option<Extension> {
    extmap(session, media, uri, id_max, |offered| match offered {
        "sendrecv" => Some(""),
        "sendonly" => Some("/recvonly"),
        _ => None,
    })
}

/// An extension that the client takes from us in one-byte headers.
fn outgoing(session: &[Attribute<'_>], media: &Media<'_>, uri: &'static str) -> Option<Extension> {
    extmap(session, media, uri, 14, |offered| matches!(offered, "sendrecv" | "recvonly").then_some("/sendonly"))
}

/// `a=extmap:<id>[/<direction>] <uri> [...]`; `answer` gives the direction that answers an offered one, if any does.
fn extmap(
    session: &[Attribute<'_>],
    media: &Media<'_>,
    uri: &'static str,
    id_max: u8,
    answer: impl Fn(&str) -> Option<&'static str>,
) -> Option<Extension> {
    media.attributes.iter().chain(session).filter(|attribute| attribute.name == "extmap").find_map(|attribute| {
        let mut fields = attribute.value.split_ascii_whitespace();
        let (id, offered) = fields.next().zip(fields.next())?;
        let (id, direction) = id.split_once('/').unwrap_or((id, "sendrecv"));
        // 15 ends one-byte headers (RFC 8285 §4.2).
        let id = id.parse().ok().filter(|id| (1..=id_max).contains(id) && *id != 15)?;
        let direction = answer(direction).filter(|_| offered == uri)?;
        Some(Extension { id, uri, direction })
    })
}

/// `a=rtcp-fb:<payload type or *> <feedback>` (RFC 4585 §4.2).
fn has_feedback(media: &Media<'_>, payload_type: u8, feedback: &str) -> bool {
    media.attributes.iter().filter(|attribute| attribute.name == "rtcp-fb").any(|attribute| {
        attribute.value.split_once(' ').is_some_and(|(format, named)| {
            (format == "*" || format.parse() == Ok(payload_type)) && named.trim() == feedback
        })
    })
}

/// The line's own direction, else the session's, else both ways (RFC 8866 §6.7).
fn direction(session: &[Attribute<'_>], media: &Media<'_>) -> Direction {
    media
        .attributes
        .iter()
        .chain(session)
        .find_map(|attribute| match attribute.name {
            "sendrecv" => Some(Direction::SendRecv),
            "sendonly" => Some(Direction::SendOnly),
            "recvonly" => Some(Direction::RecvOnly),
            "inactive" => Some(Direction::Inactive),
            _ => None,
        })
        .unwrap_or(Direction::SendRecv)
}
