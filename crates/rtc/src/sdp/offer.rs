//! Which lines of an offer are taken (RFC 8829 §5.3, RFC 9143 §7.3).

use std::collections::BTreeSet;

use super::media::{self, AudioLine, DataLine, Unusable};
use super::text::{Attribute, Description, Media, find};
use super::transport::Transport;
use super::{Accepted, LocalDescription, OfferError, answer};

/// A parsed, checked offer.
#[derive(Debug, Clone)]
pub struct Offer {
    pub(super) transport: Transport,
    /// All m-lines, in the offer's order. At least one is taken.
    pub(super) lines: Vec<Line>,
    /// Indices of the lines that share the transport, the answerer-tagged one first.
    pub(super) shared: Vec<usize>,
    /// Whether the offer has a BUNDLE group for them.
    pub(super) bundled: bool,
    /// `a=extmap-allow-mixed` at session level.
    pub(super) allow_mixed: bool,
    refusals: Vec<OfferError>,
}

/// One m-line and what becomes of it.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) kind: String,
    pub(super) protocol: String,
    pub(super) mid: Option<String>,
    pub(super) verdict: Verdict,
}

#[derive(Debug, Clone)]
pub(super) enum Verdict {
    Audio(AudioLine),
    Data(DataLine),
    /// Kept for the sake of the transport that it carries.
    Inactive(OfferedFormat),
    Refused(OfferedFormat),
}

/// A format of a line that is not used, with the attributes that explain it, to be copied back.
#[derive(Debug, Clone)]
pub(super) struct OfferedFormat {
    pub(super) format: String,
    /// Names and values of its `a=rtpmap` and `a=fmtp`.
    pub(super) attributes: Vec<(String, String)>,
}

impl Offer {
    /// Reads an offer. Lenient where it is harmless (LF ends, missing last CRLF), strict where a call could not work.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, OfferError> {
        let description = Description::read(text)?;
        let session = &description.session;
        let media = &description.media;
        check_mids(media)?;
        let groups = groups(session, media);

        let mut usable: Vec<_> = media.iter().map(|line| usable(session, media, &groups, line)).collect();
        let Some(lead) = lead(&usable) else {
            return Err(nothing_usable(usable));
        };
        let group = group_of(&groups, media[lead].mid());
        let tagged = group.and_then(|group| tagged(group, media));

        let mut refusals = Vec::new();
        let mut taken = Taken::default();
        let mut lines = Vec::with_capacity(media.len());
        for (index, line) in media.iter().enumerate() {
            let with_lead = index == lead || in_group(group, line);
            let format = || OfferedFormat::of(line);
            let verdict = match std::mem::replace(&mut usable[index], Ok(Use::Dead)) {
                Ok(Use::Audio(audio)) if with_lead && taken.first(Kind::Audio) => Verdict::Audio(audio),
                Ok(Use::Data(data)) if with_lead && taken.first(Kind::Data) => Verdict::Data(data),
                Ok(Use::Dead) => Verdict::Refused(format()),
                Ok(Use::Audio(_) | Use::Data(_)) => {
                    let fix = "offer one audio and one data channel line, both in one a=group:BUNDLE";
                    refusals.push(OfferError::new(line.line, "m=", "is beyond what one call takes", fix));
                    if tagged == Some(index) && line.kind == "audio" {
                        Verdict::Inactive(format())
                    } else {
                        Verdict::Refused(format())
                    }
                }
                Err(Unusable::Unwanted(reason)) => {
                    refusals.push(reason);
                    if tagged == Some(index) { Verdict::Inactive(format()) } else { Verdict::Refused(format()) }
                }
                Err(Unusable::Broken(reason)) => {
                    refusals.push(reason);
                    Verdict::Refused(format())
                }
            };
            lines.push(Line {
                kind: line.kind.to_owned(),
                protocol: line.protocol.to_owned(),
                mid: line.mid().map(str::to_owned),
                verdict,
            });
        }

        let shared = shared(group, media, &lines, lead);
        let transport = Transport::read(session, &media[shared[0]])?;
        Ok(Self {
            transport,
            lines,
            shared,
            bundled: group.is_some(),
            allow_mixed: find(session, "extmap-allow-mixed").is_some(),
            refusals,
        })
    }

    /// Answers it.
    #[must_use]
    pub fn accept(&self, local: &LocalDescription) -> Accepted {
        let sped = !self.transport.sped.is_empty();
        answer::write(self, local, answer::Terms { role: self.transport.role, sped, version: 1, ice_session: 1 })
    }

    /// Why lines are refused, in the offer's order: for a log, as an answer cannot say it. Lines that were offered dead
    /// have no reason.
    pub fn refusals(&self) -> impl Iterator<Item = &OfferError> {
        self.refusals.iter()
    }
}

impl OfferedFormat {
    fn of(line: &Media<'_>) -> Self {
        let maps = line.attributes.iter().filter(|attribute| attribute.name == "rtpmap");
        let explained: BTreeSet<&str> = maps.filter_map(|map| Some(map.value.split_once(' ')?.0)).collect();
        let format = line.formats.iter().find(|format| explained.contains(*format)).unwrap_or(&line.formats[0]);
        let attributes = line
            .attributes
            .iter()
            .filter(|attribute| matches!(attribute.name, "rtpmap" | "fmtp") && names_format(attribute, format))
            .map(|attribute| (attribute.name.to_owned(), attribute.value.to_owned()))
            .collect();
        Self { format: (*format).to_owned(), attributes }
    }
}

/// What a line could be used for, looked at alone.
enum Use {
    Audio(AudioLine),
    Data(DataLine),
    Dead,
}

#[derive(Clone, Copy)]
enum Kind {
    Audio,
    Data,
}

#[derive(Default)]
struct Taken {
    audio: bool,
    data: bool,
}

impl Taken {
    /// Whether this is the first line of its kind.
    fn first(&mut self, kind: Kind) -> bool {
        let taken = match kind {
            Kind::Audio => &mut self.audio,
            Kind::Data => &mut self.data,
        };
        !std::mem::replace(taken, true)
    }
}

/// Mids of lines, in the group's order.
type Group<'a> = Vec<&'a str>;

/// The BUNDLE groups. A mid counts in the first group that has it (RFC 9143 §7.1), and what names no line is left out:
/// however much a group lists, it has a member for each m-line at most.
fn groups<'a>(session: &[Attribute<'a>], media: &[Media<'a>]) -> Vec<Group<'a>> {
    let mut unplaced: Vec<&str> = media.iter().filter_map(Media::mid).collect();
    let mut groups = Vec::new();
    for attribute in session.iter().filter(|attribute| attribute.name == "group") {
        let mut fields = attribute.value.split_ascii_whitespace();
        if fields.next() != Some("BUNDLE") {
            continue;
        }
        let place = |mid| unplaced.iter().position(|other| *other == mid).map(|at| unplaced.swap_remove(at));
        let group: Group<'a> = fields.filter_map(place).collect();
        if !group.is_empty() {
            groups.push(group);
        }
    }
    groups
}

fn group_of<'g, 'a>(groups: &'g [Group<'a>], mid: Option<&str>) -> Option<&'g Group<'a>> {
    let mid = mid?;
    groups.iter().find(|group| group.contains(&mid))
}

fn in_group(group: Option<&Group<'_>>, line: &Media<'_>) -> bool {
    group.zip(line.mid()).is_some_and(|(group, mid)| group.contains(&mid))
}

/// The offerer-tagged line of a group: its first that has a port of its own (RFC 9143 §7.2).
fn tagged(group: &Group<'_>, media: &[Media<'_>]) -> Option<usize> {
    group.iter().find_map(|mid| media.iter().position(|line| line.mid() == Some(mid) && line.port != 0))
}

/// RFC 5888 §4: a mid names one line.
fn check_mids(media: &[Media<'_>]) -> Result<(), OfferError> {
    for (index, line) in media.iter().enumerate() {
        let Some(mid) = line.find("mid") else { continue };
        if mid.value.is_empty() || mid.value.contains(char::is_whitespace) {
            return Err(OfferError::new(mid.line, "a=mid", "is not one word", "send a=mid:<word>"));
        }
        if media[..index].iter().any(|other| other.mid() == Some(mid.value)) {
            return Err(OfferError::new(mid.line, "a=mid", "names a second line", "give each m-line a mid of its own"));
        }
    }
    Ok(())
}

fn usable(
    session: &[Attribute<'_>],
    media: &[Media<'_>],
    groups: &[Group<'_>],
    line: &Media<'_>,
) -> Result<Use, Unusable> {
    if line.is_dead() {
        return Ok(Use::Dead);
    }
    let group = group_of(groups, line.mid());
    let tagged = group.and_then(|group| tagged(group, media));
    if line.port == 0 && tagged.is_none() {
        let fix = "put its mid into a=group:BUNDLE behind one with a port";
        return Err(Unusable::Broken(OfferError::new(line.line, "a=bundle-only", "is in no BUNDLE group", fix)));
    }
    match line.kind {
        "audio" => {
            let multiplexed = tagged.is_some_and(|tagged| media[tagged].find("rtcp-mux").is_some());
            media::audio(session, line, multiplexed).map(Use::Audio)
        }
        "application" => media::data(line).map(Use::Data),
        kind => {
            let problem = format!("offers {kind}");
            let reason =
                OfferError::new(line.line, "m=", &problem, "offer audio and a data channel, nothing else is used");
            Err(Unusable::Unwanted(reason))
        }
    }
}

/// The line that decides which transport the call has.
fn lead(usable: &[Result<Use, Unusable>]) -> Option<usize> {
    let audio = usable.iter().position(|line| matches!(line, Ok(Use::Audio(_))));
    audio.or_else(|| usable.iter().position(|line| matches!(line, Ok(Use::Data(_)))))
}

/// The reason of one line stands for all: of the first that might have been used, else of the first.
fn nothing_usable(usable: Vec<Result<Use, Unusable>>) -> OfferError {
    let mut reasons: Vec<_> = usable
        .into_iter()
        .filter_map(Result::err)
        .map(|(Unusable::Unwanted(reason) | Unusable::Broken(reason))| reason)
        .collect();
    let telling = reasons.iter().position(|reason| reason.attribute != "m=").unwrap_or(0);
    if reasons.is_empty() {
        return OfferError::whole("m=", "with a port is missing", "offer m=audio with Opus");
    }
    reasons.swap_remove(telling)
}

/// Lines that share the transport, in the group's order: its first is the one whose transport counts.
fn shared(group: Option<&Group<'_>>, media: &[Media<'_>], lines: &[Line], lead: usize) -> Vec<usize> {
    let Some(group) = group else { return vec![lead] };
    let mut shared = Vec::new();
    for mid in group {
        let line = media.iter().position(|line| line.mid() == Some(mid));
        let Some(line) = line.filter(|line| !matches!(lines[*line].verdict, Verdict::Refused(_))) else { continue };
        if !shared.contains(&line) {
            shared.push(line);
        }
    }
    // A bundle-only line carries no transport of its own.
    let with_port = shared.iter().position(|line| media[*line].port != 0).unwrap_or(0);
    shared[..=with_port].rotate_right(1);
    shared
}

fn names_format(attribute: &Attribute<'_>, format: &str) -> bool {
    attribute.value.split_once(' ').is_some_and(|(named, _)| named == format)
}
