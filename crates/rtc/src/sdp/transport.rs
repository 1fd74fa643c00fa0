//! What a line says about its transport: ICE credentials, certificate, DTLS role (RFC 8839 §5.4, RFC 8122, RFC 8842).

use super::text::{Attribute, Media, find};
use super::{Fingerprint, OfferError};
use crate::Password;

/// RFC 8839 §5.4: ice-ufrag and ice-pwd have at most 256 characters.
const CREDENTIAL_MAX: usize = 256;
/// Hash functions of RFC 8122 §5 that are still safe, with the length of their digests.
const HASHES: [(&str, usize); 3] = [("sha-256", 32), ("sha-384", 48), ("sha-512", 64)];

/// ICE options that ask for DTLS inside STUN. One protocol with three names: the draft's, and those of libwebrtc from
/// M155 on and before.
const SPED: [&str; 3] = ["sped", "googspedv1", "goog-sped-v1"];

/// The transport of a whole call.
#[derive(Debug, Clone)]
pub(super) struct Transport {
    /// The client's `a=ice-ufrag`.
    pub(super) ufrag: String,
    /// Its `a=ice-pwd`, which a lite agent never needs; another one restarts ICE.
    pub(super) password: Password,
    pub(super) fingerprints: Vec<Fingerprint>,
    pub(super) role: Role,
    /// The offer leaves the choice of roles.
    pub(super) actpass: bool,
    /// The names of [`SPED`] that the offer has, to be echoed; none when it is not to be used.
    pub(super) sped: Vec<&'static str>,
}

/// The DTLS role that an answer takes (RFC 8842 §5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// We send the ClientHello.
    Active,
    /// We wait for it.
    Passive,
}

impl Role {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Passive => "passive",
        }
    }
}

impl Transport {
    /// Reads the transport of `media`, with what stands at session level inherited.
    pub(super) fn read(session: &[Attribute<'_>], media: &Media<'_>) -> Result<Self, OfferError> {
        let inherited = |name| media.find(name).or_else(|| find(session, name));
        if let Some(lite) = find(session, "ice-lite") {
            let fix = "offer as a full ICE agent, as this side is lite and sends no checks";
            return Err(OfferError::new(lite.line, "a=ice-lite", "on both sides connects nothing", fix));
        }
        let ufrag = credential(inherited("ice-ufrag"), media, "a=ice-ufrag")?;
        let password = credential(inherited("ice-pwd"), media, "a=ice-pwd")?;
        let (role, sped) = role(inherited("setup"), sped(session, media))?;
        Ok(Self {
            ufrag: ufrag.to_owned(),
            password: password.into(),
            fingerprints: fingerprints(session, media)?,
            role,
            actpass: inherited("setup").is_some_and(|setup| setup.value == "actpass"),
            sped,
        })
    }
}

fn credential<'a>(
    attribute: Option<Attribute<'a>>,
    media: &Media<'_>,
    name: &'static str,
) -> Result<&'a str, OfferError> {
    let fix = "send the offer of a WebRTC peer connection, with ICE credentials for this m-line or the session";
    match attribute {
        None => Err(OfferError::new(media.line, name, "is missing", fix)),
        Some(attribute) => credential_of(attribute, name),
    }
}

/// The value of an ufrag or password that is there.
pub(super) fn credential_of<'a>(attribute: Attribute<'a>, name: &'static str) -> Result<&'a str, OfferError> {
    let Attribute { line, value, .. } = attribute;
    if (1..=CREDENTIAL_MAX).contains(&value.len()) {
        return Ok(value);
    }
    let problem = if value.is_empty() { "is empty".to_owned() } else { format!("has {} characters", value.len()) };
    Err(OfferError::new(
        line,
        name,
        &problem,
        "send what the peer connection's description says, at most 256 characters",
    ))
}

/// All fingerprints of a safe hash. A line's own replace the session's (RFC 8122 §5).
fn fingerprints(session: &[Attribute<'_>], media: &Media<'_>) -> Result<Vec<Fingerprint>, OfferError> {
    const NAME: &str = "a=fingerprint";
    let level = if media.find("fingerprint").is_some() { &media.attributes } else { session };
    let mut known = Vec::new();
    let mut weak = None;
    for Attribute { line, value, .. } in level.iter().filter(|attribute| attribute.name == "fingerprint") {
        let (hash, digest) = value.split_once(' ').unwrap_or((value, ""));
        let hash = hash.to_ascii_lowercase();
        let Some((_, bytes)) = HASHES.iter().find(|(name, _)| *name == hash) else {
            weak = Some((*line, hash));
            continue;
        };
        let digest = hex(digest.trim()).filter(|digest| digest.len() == *bytes).ok_or_else(|| {
            let problem = format!("is not a {hash} digest");
            OfferError::new(*line, NAME, &problem, &format!("send {bytes} hexadecimal bytes with ':' between them"))
        })?;
        known.push(Fingerprint { hash, digest });
    }
    if !known.is_empty() {
        return Ok(known);
    }
    let fix = "send the sha-256 fingerprint of the certificate";
    Err(match weak {
        Some((line, hash)) => {
            OfferError::new(line, NAME, &format!("is of {hash} only, which proves nothing or is unknown"), fix)
        }
        None => OfferError::new(media.line, NAME, "is missing", fix),
    })
}

/// `AB:CD:...` to bytes.
fn hex(text: &str) -> Option<Vec<u8>> {
    text.split(':')
        .map(|byte| match byte.as_bytes() {
            [high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => u8::from_str_radix(byte, 16).ok(),
            _ => None,
        })
        .collect()
}

/// The names of [`SPED`] in `a=ice-options` (RFC 8839 §5.6), which may stand at both levels and more than once.
fn sped(session: &[Attribute<'_>], media: &Media<'_>) -> Vec<&'static str> {
    let options = session.iter().chain(&media.attributes).filter(|attribute| attribute.name == "ice-options");
    let offered: Vec<&str> = options.flat_map(|attribute| attribute.value.split_ascii_whitespace()).collect();
    SPED.into_iter().filter(|name| offered.contains(name)).collect()
}

/// RFC 8842 §5.3. A client that leaves the choice gets our ClientHello: one trip fewer to media. With SPED it sends its
/// own instead, in its first check, which saves another; that needs a client that is the DTLS client. Without the
/// attribute a client is active (RFC 4145 §4).
fn role(setup: Option<Attribute<'_>>, sped: Vec<&'static str>) -> Result<(Role, Vec<&'static str>), OfferError> {
    match setup {
        Some(Attribute { value: "actpass", .. }) if sped.is_empty() => Ok((Role::Active, sped)),
        Some(Attribute { value: "passive", .. }) => Ok((Role::Active, Vec::new())),
        None | Some(Attribute { value: "actpass" | "active", .. }) => Ok((Role::Passive, sped)),
        Some(Attribute { line, value, .. }) => {
            let problem = format!("is {value:?}");
            Err(OfferError::new(line, "a=setup", &problem, "send actpass, active or passive"))
        }
    }
}
