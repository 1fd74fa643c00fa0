//! The text of a session description (RFC 8866): lines with their numbers, grouped under their m-lines.
//!
//! Nothing is interpreted here but the m-lines themselves; all other lines than `a=` are dropped, as nothing in them
//! matters to a call over ICE.

use super::{MEDIA_LINES_MAX, OFFER_BYTES_MAX, OfferError};

/// An `a=` line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attribute<'a> {
    pub(super) line: usize,
    pub(super) name: &'a str,
    /// Empty for a flag.
    pub(super) value: &'a str,
}

/// An m-line and the attributes under it.
#[derive(Debug, Clone)]
pub(super) struct Media<'a> {
    pub(super) line: usize,
    pub(super) kind: &'a str,
    pub(super) port: u16,
    pub(super) protocol: &'a str,
    /// Never empty.
    pub(super) formats: Vec<&'a str>,
    /// Kept apart from the attributes, as lines are looked up by it.
    mid: Option<&'a str>,
    pub(super) attributes: Vec<Attribute<'a>>,
}

impl<'a> Media<'a> {
    /// The first attribute of this name under the m-line.
    pub(super) fn find(&self, name: &str) -> Option<Attribute<'a>> {
        find(&self.attributes, name)
    }

    fn push(&mut self, attribute: Attribute<'a>) {
        if attribute.name == "mid" {
            self.mid.get_or_insert(attribute.value);
        }
        self.attributes.push(attribute);
    }

    pub(super) fn mid(&self) -> Option<&'a str> {
        self.mid
    }

    /// Offered as dead (RFC 3264 §8.2), rather than as sharing another line's port (RFC 9143 §6).
    pub(super) fn is_dead(&self) -> bool {
        self.port == 0 && self.find("bundle-only").is_none()
    }
}

/// A whole description.
#[derive(Debug, Clone)]
pub(super) struct Description<'a> {
    /// Above the first m-line.
    pub(super) session: Vec<Attribute<'a>>,
    pub(super) media: Vec<Media<'a>>,
}

impl<'a> Description<'a> {
    pub(super) fn read(text: &'a str) -> Result<Self, OfferError> {
        let mut lines = lines("the offer", text)?;
        match lines.next() {
            None => return Err(OfferError::whole("the offer", "is empty", "send the SDP of a WebRTC offer")),
            Some((_, "v=0")) => {}
            Some((line, _)) => {
                let fix = "send the text of the SDP itself, not JSON or a form around it";
                return Err(OfferError::new(line, "v=0", "is not where the offer begins", fix));
            }
        }
        Self::read_lines(lines)
    }

    /// Reads a fragment (RFC 8840 §9), which has no head.
    pub(super) fn read_fragment(text: &'a str) -> Result<Self, OfferError> {
        Self::read_lines(lines("the fragment", text)?)
    }

    fn read_lines(lines: impl Iterator<Item = (usize, &'a str)>) -> Result<Self, OfferError> {
        let mut description = Self { session: Vec::new(), media: Vec::new() };
        for (number, line) in lines {
            if line.contains(|c: char| c.is_control() && c != '\t') {
                return Err(OfferError::new(number, "the line", "holds a control character", "send printable text"));
            }
            match line.split_once('=') {
                Some(("a", attribute)) => {
                    let (name, value) = attribute.split_once(':').unwrap_or((attribute, ""));
                    let attribute = Attribute { line: number, name: name.trim(), value: value.trim() };
                    match description.media.last_mut() {
                        Some(media) => media.push(attribute),
                        None => description.session.push(attribute),
                    }
                }
                Some(("m", media)) => {
                    if description.media.len() == MEDIA_LINES_MAX {
                        let problem = format!("is one more than {MEDIA_LINES_MAX}");
                        return Err(OfferError::new(number, "m=", &problem, "offer fewer media lines"));
                    }
                    description.media.push(media_line(number, media)?);
                }
                Some((kind, _)) if kind.len() == 1 => {}
                _ => {
                    let fix = "send whole lines, such as m=audio 9 UDP/TLS/RTP/SAVPF 111";
                    return Err(OfferError::new(number, "the line", "is not of the form x=value", fix));
                }
            }
        }
        Ok(description)
    }
}

/// The lines that are not blank, with their 1-based numbers.
fn lines<'a>(
    what: &'static str,
    text: &'a str,
) -> Result<impl Iterator<Item = (usize, &'a str)> + use<'a>, OfferError> {
    if text.len() > OFFER_BYTES_MAX {
        let problem = format!("has {} bytes", text.len());
        return Err(OfferError::whole(what, &problem, &format!("send at most {OFFER_BYTES_MAX}")));
    }
    let lines = text.split('\n').enumerate();
    Ok(lines
        .map(|(index, line)| (index + 1, line.trim_end_matches('\r').trim_end()))
        .filter(|(_, line)| !line.is_empty()))
}

/// The first attribute of this name.
pub(super) fn find<'a>(attributes: &[Attribute<'a>], name: &str) -> Option<Attribute<'a>> {
    attributes.iter().find(|attribute| attribute.name == name).copied()
}

/// `m=<kind> <port>[/<ports>] <protocol> <format> ...` (RFC 8866 §5.14).
fn media_line(line: usize, value: &str) -> Result<Media<'_>, OfferError> {
    let malformed = |problem| OfferError::new(line, "m=", problem, "send m=<media> <port> <protocol> <format> ...");
    let mut fields = value.split_ascii_whitespace();
    let kind = fields.next().ok_or_else(|| malformed("is empty"))?;
    let port = fields.next().ok_or_else(|| malformed("names no port"))?;
    let (port, _) = port.split_once('/').unwrap_or((port, ""));
    let port: u16 = port.parse().map_err(|_| malformed("has a port that is not a number from 0 to 65535"))?;
    let protocol = fields.next().ok_or_else(|| malformed("names no protocol"))?;
    let mut formats: Vec<_> = fields.collect();
    if formats.is_empty() {
        // Some stacks have none left to say of what was rejected; the answer says one again, as the grammar wants it.
        if port != 0 {
            return Err(malformed("names no format"));
        }
        formats.push("0");
    }
    Ok(Media { line, kind, port, protocol, formats, mid: None, attributes: Vec::new() })
}
