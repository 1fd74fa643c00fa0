//! SDP fragments (RFC 8840 §9): candidates that trickle in, and ICE restarts without an offer (RFC 9725 §4.3).
//!
//! A lite agent learns addresses from checks, so candidates are read to be checked and then forgotten.

use std::fmt::Write as _;

use super::renew::{Credentials, Renewal, Renewed};
use super::text::{Attribute, Description};
use super::{OfferError, Setup, answer, transport};

/// A fragment of the client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// Of the ICE session that it belongs to, or that is to begin.
    pub credentials: Option<Credentials>,
    /// `a=group`, to be repeated in the answer.
    group: Option<String>,
    /// Kind and `a=mid` of its lines that have one.
    mids: Vec<(String, String)>,
}

impl Fragment {
    /// Reads a fragment.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, OfferError> {
        let description = Description::read_fragment(text)?;
        let lines = || description.session.iter().chain(description.media.iter().flat_map(|media| &media.attributes));
        for candidate in lines().filter(|attribute| attribute.name == "candidate") {
            check_candidate(candidate)?;
        }
        let credential = |name, shown| {
            let found = lines().find(|attribute| attribute.name == name);
            found.map(|attribute| transport::credential_of(*attribute, shown).map(str::to_owned)).transpose()
        };
        let (ufrag, password) = (credential("ice-ufrag", "a=ice-ufrag")?, credential("ice-pwd", "a=ice-pwd")?);
        let credentials = match (ufrag, password) {
            (Some(ufrag), Some(password)) => Some(Credentials { ufrag, password: password.into() }),
            (None, None) => None,
            (Some(_), None) => return Err(OfferError::whole("a=ice-pwd", "is missing", "send it beside a=ice-ufrag")),
            (None, Some(_)) => return Err(OfferError::whole("a=ice-ufrag", "is missing", "send it beside a=ice-pwd")),
        };
        let group = description.session.iter().find(|attribute| attribute.name == "group");
        let mids = description.media.iter().filter_map(|media| Some((media.kind.to_owned(), media.mid()?.to_owned())));
        Ok(Self { credentials, group: group.map(|group| group.value.to_owned()), mids: mids.collect() })
    }

    /// A page that wrote the first answer itself told no mid, but its fragment has it.
    fn mid(&self, kind: &str) -> Option<&str> {
        self.mids.iter().find(|(other, _)| other == kind).map(|(_, mid)| mid.as_str())
    }
}

impl Setup {
    /// Answers a fragment that restarts ICE; `None`: it does not, so there is nothing to answer.
    #[must_use]
    pub fn restart(&self, fragment: &Fragment, with: &Renewal<'_>) -> Option<Renewed> {
        let fresh = with.fresh;
        let remote = fragment.credentials.as_ref().filter(|remote| self.is_restart(&remote.ufrag, &remote.password))?;
        let mut setup = self.clone();
        setup.remote_ufrag.clone_from(&remote.ufrag);
        setup.remote_password = Some(remote.password.clone());
        setup.local_ufrag.clone_from(&fresh.ufrag);
        setup.local_password.clone_from(&fresh.password);

        let mut text = String::with_capacity(512);
        let mut line = |line: std::fmt::Arguments<'_>| {
            // Writing to a String cannot fail.
            let _ = text.write_fmt(line);
            text.push_str("\r\n");
        };
        line(format_args!("a=ice-lite"));
        if let Some(group) = &fragment.group {
            line(format_args!("a=group:{group}"));
        }
        let (kind, mid) = match (&self.audio, &self.sctp) {
            (Some(audio), _) => {
                line(format_args!("m=audio 9 UDP/TLS/RTP/SAVPF {}", audio.primary.payload_type));
                ("audio", audio.mid.as_deref())
            }
            (None, sctp) => {
                line(format_args!("m=application 9 UDP/DTLS/SCTP webrtc-datachannel"));
                ("application", sctp.as_ref().and_then(|sctp| sctp.mid.as_deref()))
            }
        };
        // RFC 8840 §9: a line of a fragment is found by its mid.
        if let Some(mid) = mid.or_else(|| fragment.mid(kind)) {
            line(format_args!("a=mid:{mid}"));
        }
        line(format_args!("a=ice-ufrag:{}", fresh.ufrag));
        line(format_args!("a=ice-pwd:{}", fresh.password.expose()));
        answer::candidates(with.candidates, with.ice_session + 1, line);
        Some(Renewed { answer: text, setup, restarted: true, channels: Vec::new() })
    }
}

/// `<foundation> <component> <transport> <priority> <address> <port> typ <type> ...` (RFC 8839 §5.1). Transport and address
/// may be anything: what is not to be used is skipped, and so is the empty candidate that ends some clients' lists.
fn check_candidate(candidate: &Attribute<'_>) -> Result<(), OfferError> {
    if candidate.value.is_empty() {
        return Ok(());
    }
    let mut fields = candidate.value.split_ascii_whitespace();
    let mut field = || fields.next().unwrap_or_default();
    let (foundation, component, _transport, priority) = (field(), field(), field(), field());
    let (address, port, typ, kind) = (field(), field(), field(), field());
    let sound = (1..=32).contains(&foundation.len())
        && component.parse().is_ok_and(|component: u16| (1..=256).contains(&component))
        && priority.parse::<u32>().is_ok()
        && !address.is_empty()
        && port.parse::<u16>().is_ok()
        && typ == "typ"
        && !kind.is_empty();
    if sound {
        return Ok(());
    }
    let fix = "send <foundation> <component> <transport> <priority> <address> <port> typ <type>";
    Err(OfferError::new(candidate.line, "a=candidate", "cannot be read", fix))
}
