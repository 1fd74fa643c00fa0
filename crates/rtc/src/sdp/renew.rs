//! Offers after the first (RFC 3264 §8, RFC 8829 §5.2.2, RFC 8839 §4.4, RFC 8842 §5.5): what may change, and the answer.
//!
//! Everything above ICE outlives a later offer: DTLS (its library makes no second handshake), and with it the keys, the
//! rollover counters and the SCTP association. So a later offer may
//!
//! * restart ICE: with other credentials than the last one's the answer has other ones of ours;
//! * change the direction of the audio, its payload types and its extensions;
//! * add what the call did not have: audio, data channels, negotiated ones among them, lines that are refused;
//!
//! and is refused as a whole, with the call going on as it was, when it names another certificate, asks for the other
//! DTLS role, or takes away or renames a line in use.

use std::fmt;

use super::offer::{Offer, Verdict};
use super::transport::Role;
use super::{
    Accepted, Candidate, LocalDescription, NEGOTIATED_CALL_MAX, Negotiated, OfferError, SctpInit, SctpSetup, Setup,
    answer,
};
use crate::Password;

/// What the edge brings to the answer of a later offer.
#[derive(Debug, Clone, Copy)]
pub struct Renewal<'a> {
    /// Of the certificate that the call was set up with. A [`crate::Session`] knows it by itself.
    pub fingerprint: &'a str,
    /// Advertised addresses, in order of preference.
    pub candidates: &'a [Candidate],
    /// Number of the answer in its `o=` line; the first one had 1.
    pub version: u64,
    /// Number of the ICE session so far, from 1.
    pub ice_session: u32,
    /// Our credentials, should the offer restart ICE.
    pub fresh: &'a Credentials,
}

/// `a=ice-ufrag` and `a=ice-pwd` of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `a=ice-ufrag`.
    pub ufrag: String,
    /// `a=ice-pwd`.
    pub password: Password,
}

/// A later offer's answer.
#[derive(Clone)]
pub struct Renewed {
    /// The answer's text, CRLF at the end.
    pub answer: String,
    /// What is agreed from now on.
    pub setup: Setup,
    /// ICE restarts: the answer has the fresh credentials.
    pub restarted: bool,
    /// The channels that the offer lists (RFC 8864 §6.6): those that are not open are to be opened.
    pub channels: Vec<Negotiated>,
}

/// Without the answer, in which our password stands.
impl fmt::Debug for Renewed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answer: _, setup, restarted, channels: _ } = self;
        f.debug_struct("Renewed").field("setup", setup).field("restarted", restarted).finish_non_exhaustive()
    }
}

impl Offer {
    /// Whether it restarts ICE in a call with this setup.
    #[must_use]
    pub fn restarts(&self, setup: &Setup) -> bool {
        setup.is_restart(&self.transport.ufrag, &self.transport.password)
    }
}

impl Offer {
    /// Whether its data channel line says nothing of SNAP.
    fn offers_no_init(&self) -> bool {
        !self.lines.iter().any(|line| matches!(&line.verdict, Verdict::Data(data) if data.sctp_init.is_some()))
    }
}

impl SctpSetup {
    /// Its negotiated channels and these. What an offer leaves out stays as it is: a channel is closed by the reset of its
    /// stream, and browsers list none (RFC 8864 §6.6). What it lists anew replaces what was said of the stream before.
    fn with(&self, channels: &[Negotiated]) -> Vec<Negotiated> {
        let mut all = self.negotiated.clone();
        for channel in channels {
            match all.iter_mut().find(|agreed| agreed.id == channel.id) {
                Some(agreed) => agreed.clone_from(channel),
                None => all.push(channel.clone()),
            }
        }
        all
    }
}

impl Setup {
    /// Answers a later offer of the same call.
    ///
    /// # Errors
    /// What in it cannot be: the call goes on as it was.
    pub fn renew(&self, offer: &Offer, with: &Renewal<'_>) -> Result<Renewed, OfferError> {
        self.check_transport(offer)?;
        self.check_lines(offer)?;

        let restarted = offer.restarts(self);
        let (ufrag, password) = if restarted {
            (with.fresh.ufrag.clone(), with.fresh.password.clone())
        } else {
            (self.local_ufrag.clone(), self.local_password.clone())
        };
        let [.., a, b, c, d] = self.session.to_be_bytes();
        let local = LocalDescription {
            ufrag,
            password,
            fingerprint: with.fingerprint.to_owned(),
            candidates: with.candidates.to_vec(),
            session: self.session,
            uplink: self.uplink,
            sctp_init: match &self.sctp {
                Some(sctp) => SctpInit::Repeated(sctp.snap.clone().map(Box::new)),
                None => SctpInit::Fresh,
            },
            ssrc: self.audio.as_ref().map_or_else(|| u32::from_be_bytes([a, b, c, d]).max(1), |audio| audio.ssrc),
        };
        let terms = answer::Terms {
            role: self.role(),
            sped: self.sped,
            version: with.version,
            ice_session: with.ice_session + u32::from(restarted),
        };
        let Accepted { answer, mut setup, .. } = answer::write(offer, &local, terms);
        let channels = setup.sctp.as_ref().map(|sctp| sctp.negotiated.clone()).unwrap_or_default();
        if let Some((renewed, agreed)) = setup.sctp.as_mut().zip(self.sctp.as_ref()) {
            if offer.offers_no_init() {
                renewed.snap.clone_from(&agreed.snap);
            }
            renewed.negotiated = agreed.with(&channels);
        }
        Ok(Renewed { answer, setup, restarted, channels })
    }

    /// Whether these credentials of the client's begin another ICE session than the one agreed (RFC 8839 §4.4.1.1.1).
    #[must_use]
    pub fn is_restart(&self, ufrag: &str, password: &Password) -> bool {
        self.remote_ufrag != ufrag || self.remote_password.as_ref().is_some_and(|agreed| agreed != password)
    }

    fn role(&self) -> Role {
        if self.dtls_active { Role::Active } else { Role::Passive }
    }

    /// The certificate and the DTLS role stay (RFC 8842 §5.5).
    fn check_transport(&self, offer: &Offer) -> Result<(), OfferError> {
        let transport = &offer.transport;
        let same = |fingerprint| transport.fingerprints.contains(fingerprint);
        if !self.fingerprints.iter().all(same) || transport.fingerprints.len() != self.fingerprints.len() {
            let fix = "offer with the peer connection that made the call, or make a new call";
            return Err(OfferError::whole("a=fingerprint", "is not that of this call", fix));
        }
        if transport.role != self.role() && !transport.actpass {
            let fix = "offer a=setup:actpass, which keeps the roles that were agreed";
            return Err(OfferError::whole("a=setup", "asks for the other DTLS role", fix));
        }
        Ok(())
    }

    /// The lines in use stay in use, under their names (RFC 8829 §5.2.2).
    fn check_lines(&self, offer: &Offer) -> Result<(), OfferError> {
        let audio = offer.lines.iter().find_map(|line| match &line.verdict {
            Verdict::Audio(audio) => Some((line, audio)),
            _ => None,
        });
        if let Some(agreed) = &self.audio {
            let fix = "keep the audio line; to pause it, offer it as a=inactive";
            match audio {
                None => return Err(OfferError::whole("m=audio", "of this call is missing or unusable", fix)),
                // A page that wrote the first answer itself told no mid.
                Some((line, _)) if agreed.mid.is_some() && line.mid != agreed.mid => {
                    return Err(OfferError::whole("a=mid", "of the audio line is not that of this call", fix));
                }
                // Who codes the replies was told when the call began.
                Some((_, audio)) if audio.primary.codec != agreed.primary.codec => {
                    let fix = "offer the codec that the call began with, or make a new call";
                    return Err(OfferError::whole("a=rtpmap", "of the audio line names another codec", fix));
                }
                Some(_) => {}
            }
        }
        let data = offer.lines.iter().find_map(|line| match &line.verdict {
            Verdict::Data(data) => Some(data),
            _ => None,
        });
        if let Some(agreed) = &self.sctp {
            let fix = "keep the data channel line as it was: its association goes on";
            match data {
                None => return Err(OfferError::whole("m=application", "of this call is missing or unusable", fix)),
                Some(line)
                    if agreed.with(&line.negotiated).len() > agreed.negotiated.len().max(NEGOTIATED_CALL_MAX) =>
                {
                    let problem = format!("lists more than {NEGOTIATED_CALL_MAX} streams with those of earlier offers");
                    let fix = "open further channels in band, without a=dcmap";
                    return Err(OfferError::whole("a=dcmap", &problem, fix));
                }
                Some(line) if line.port != agreed.remote_port => {
                    return Err(OfferError::whole("a=sctp-port", "is not that of this call", fix));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}
