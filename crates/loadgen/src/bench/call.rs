//! One WebRTC caller of a bench: set up and kept by str0m, its audio sealed and opened beside it.
//!
//! Invariant: after each input str0m is drained, so that its next timeout is known.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context as _, bail};
use net::SendBatch;
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::crypto::dtls::DtlsCert;
use str0m::media::Mid;
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};

use super::media::Media;
use super::tap::{self, Keys};

/// One caller.
pub(crate) struct Call {
    rtc: Rtc,
    mid: Mid,
    local: SocketAddr,
    offer: Option<SdpPendingOffer>,
    keys: Option<Keys>,
    connected: bool,
    pub(crate) media: Option<Media>,
    /// Where str0m sends to: the server as ICE found it.
    pub(crate) server: Option<SocketAddr>,
    /// For the DELETE.
    pub(crate) location: Option<String>,
    pub(crate) began: Instant,
    /// When str0m wants to be woken, as far as the driver has been told.
    pub(crate) armed: Option<Instant>,
}

/// A certificate for all callers of a run: making one costs more than a handshake.
pub(crate) fn certificate() -> anyhow::Result<DtlsCert> {
    tap::provider().dtls_provider.generate_certificate().context("this DTLS makes no certificates")
}

impl Call {
    /// A caller at `local`, and its offer: Opus both ways and the events channel.
    pub(crate) fn new(now: Instant, local: SocketAddr, certificate: &DtlsCert) -> anyhow::Result<(Self, String)> {
        let (rtc, mid, sdp, pending) = crate::caller::offer(|| {
            let mut rtc = RtcConfig::new()
                .set_crypto_provider(tap::provider())
                .set_dtls_cert(certificate.clone())
                .clear_codecs()
                .enable_opus(true, false)
                .build(now);
            rtc.add_local_candidate(Candidate::host(local, "udp")?);
            Ok(rtc)
        })?;
        let call = Self {
            rtc,
            mid,
            local,
            offer: Some(pending),
            keys: None,
            connected: false,
            media: None,
            server: None,
            location: None,
            began: now,
            armed: None,
        };
        Ok((call, sdp))
    }

    pub(crate) fn answer(&mut self, sdp: &str, location: Option<String>) -> anyhow::Result<()> {
        let Some(offer) = self.offer.take() else { bail!("a second answer") };
        self.location = location;
        self.rtc.sdp_api().accept_answer(offer, SdpAnswer::from_sdp_string(sdp)?)?;
        Ok(())
    }

    /// Whether audio may flow.
    pub(crate) fn is_up(&self) -> bool {
        self.media.is_some()
    }

    /// Takes a datagram that is no audio, or came before the keys.
    pub(crate) fn receive(&mut self, now: Instant, source: SocketAddr, datagram: &[u8]) -> anyhow::Result<()> {
        let Ok(contents) = datagram.try_into() else { return Ok(()) };
        let receive = Receive { proto: Protocol::Udp, source, destination: self.local, contents };
        self.rtc.handle_input(Input::Receive(now, receive))?;
        Ok(())
    }

    pub(crate) fn timeout(&mut self, now: Instant) -> anyhow::Result<()> {
        self.rtc.handle_input(Input::Timeout(now))?;
        Ok(())
    }

    /// Says goodbye; what that takes leaves with the next [`Self::drain`].
    pub(crate) fn close(&mut self) {
        self.rtc.disconnect();
    }

    /// Sends what str0m has; gives its next timeout.
    pub(crate) fn drain(&mut self, send: &mut SendBatch) -> anyhow::Result<Option<Instant>> {
        let next = loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => break at,
                Output::Transmit(transmit) => {
                    self.server = Some(transmit.destination);
                    send.push(self.local, transmit.destination, &transmit.contents);
                }
                Output::Event(Event::Connected) => self.connected = true,
                Output::Event(_) => {}
            }
        };
        self.keys = tap::take().or_else(|| self.keys.take());
        if self.connected && self.media.is_none() {
            let keys = self.keys.take().context("connected without SRTP keys")?;
            self.media = Some(self.media(&keys)?);
        }
        Ok(self.rtc.is_alive().then_some(next))
    }

    fn media(&mut self, keys: &Keys) -> anyhow::Result<Media> {
        let writer = self.rtc.writer(self.mid).context("the audio line is gone")?;
        let payload_type = *writer.payload_params().next().context("no Opus agreed")?.pt();
        let ssrc = *self.rtc.direct_api().stream_tx_by_mid(self.mid, None).context("no audio line to send")?.ssrc();
        Media::new(keys, ssrc, payload_type)
    }
}
