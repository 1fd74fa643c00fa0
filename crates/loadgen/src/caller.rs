//! One caller: posts an offer, speaks a recording, keeps what it hears.
//!
//! Run loop: drain str0m until it names a timeout, send the 20 ms frame that is due, wait for a datagram or the nearer of
//! both deadlines. Frames keep their schedule: a late loop sends what is due and no more.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::crypto::CryptoProvider;
use str0m::media::{Direction, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};
use tokio::net::UdpSocket;
use voice::opus::{Decoder, Encoder, EncoderConfig, MAX_PACKET_BYTES};

const FRAME: Duration = Duration::from_millis(20);
/// Samples of one frame at 48 kHz.
const FRAME_SAMPLES: usize = 960;
/// A third of the RTP clock.
const HEARD_RATE: u32 = 16_000;
/// How long set-up may take.
const CONNECT: Duration = Duration::from_secs(15);

/// What a caller does.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the edge's HTTP is, e.g. `http://127.0.0.1:8080`.
    pub url: String,
    /// `?model=`.
    pub model: String,
    /// What it says after a second of silence: 48 kHz mono.
    pub speech: Arc<Vec<i16>>,
    /// How long it listens after it has spoken.
    pub listen: Duration,
}

/// What a call was like.
#[derive(Debug)]
pub struct Report {
    /// Post to DTLS connected.
    pub connected: Duration,
    /// What was heard, 16 kHz mono, placed by RTP time, from the first packet on.
    pub heard: Vec<i16>,
    /// Audio packets received.
    pub packets: u64,
    /// Messages of the events channel.
    pub events: Vec<String>,
}

struct Call {
    rtc: Rtc,
    mid: Mid,
    socket: UdpSocket,
    local: SocketAddr,
    decoder: Decoder,
    /// Decoded packets by their RTP time in samples of [`HEARD_RATE`].
    heard: BTreeMap<u64, Vec<i16>>,
    connected: Option<Instant>,
    packets: u64,
    events: Vec<String>,
}

/// Makes one call, to its end.
///
/// # Errors
/// It could not be set up, or broke.
pub async fn run(config: Config) -> anyhow::Result<Report> {
    let began = Instant::now();
    let (mut call, location) = Call::dial(&config).await?;
    while call.connected.is_none() {
        if began.elapsed() > CONNECT {
            bail!("not connected within {} s", CONNECT.as_secs());
        }
        call.turn(Instant::now() + FRAME).await?;
    }
    let connected = began.elapsed();

    call.talk(&config).await?;

    let hang_up = format!("{}{location}", config.url);
    tokio::task::spawn_blocking(move || ureq::delete(&hang_up).call()).await?.context("hanging up")?;
    let heard = call.heard_in_order();
    Ok(Report { connected, heard, packets: call.packets, events: call.events })
}

impl Call {
    /// Posts an offer; gives the call and its Location.
    async fn dial(config: &Config) -> anyhow::Result<(Self, String)> {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let local = socket.local_addr()?;
        let (mut rtc, mid, text, pending) = offer(|| {
            let mut rtc = rtc_config().build(Instant::now());
            rtc.add_local_candidate(Candidate::host(local, "udp")?);
            Ok(rtc)
        })?;

        let url = format!("{}/v1/realtime/calls?model={}", config.url, config.model);
        let (location, answer) = tokio::task::spawn_blocking(move || -> anyhow::Result<(String, String)> {
            let mut response = ureq::post(&url).content_type("application/sdp").send(&text)?;
            let location = response.headers().get("location").context("no Location")?.to_str()?.to_owned();
            Ok((location, response.body_mut().read_to_string()?))
        })
        .await?
        .context("posting the offer")?;
        rtc.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer)?)?;
        let decoder = Decoder::new(HEARD_RATE)?;
        let (heard, events) = (BTreeMap::new(), Vec::new());
        Ok((Self { rtc, mid, socket, local, decoder, heard, connected: None, packets: 0, events }, location))
    }

    /// A second of silence, the recording, then silence while listening.
    async fn talk(&mut self, config: &Config) -> anyhow::Result<()> {
        let mut encoder = Encoder::new(EncoderConfig::default())?;
        let silence = 48_000;
        let samples = silence + config.speech.len() + 48 * usize::try_from(config.listen.as_millis())?;
        let began = Instant::now();
        let mut packet = [0; MAX_PACKET_BYTES];
        for n in 0..samples / FRAME_SAMPLES {
            let due = began + FRAME * u32::try_from(n)?;
            while Instant::now() < due {
                self.turn(due).await?;
            }
            let mut pcm = [0; FRAME_SAMPLES];
            let at = n * FRAME_SAMPLES;
            for (i, sample) in pcm.iter_mut().enumerate() {
                *sample = (at + i).checked_sub(silence).and_then(|at| config.speech.get(at)).copied().unwrap_or(0);
            }
            let length = encoder.encode(&pcm, &mut packet)?;
            let now = Instant::now();
            let Some(writer) = self.rtc.writer(self.mid) else { bail!("the audio line is gone") };
            let Some(opus) = writer.payload_params().next().map(|params| params.pt()) else { bail!("no Opus agreed") };
            let time = MediaTime::new(u64::try_from(at)?, str0m::media::Frequency::FORTY_EIGHT_KHZ);
            writer.write(opus, now, time, packet[..length].to_vec())?;
        }
        Ok(())
    }

    /// Sends what str0m has, then waits for one datagram, its timeout, or `until`.
    async fn turn(&mut self, until: Instant) -> anyhow::Result<()> {
        let timeout = self.drain().await?;
        let mut buffer = [0; 2048];
        let wake = timeout.min(until);
        let input = match tokio::time::timeout_at(wake.into(), self.socket.recv_from(&mut buffer)).await {
            Ok(received) => {
                let (length, source) = received?;
                let Ok(contents) = buffer[..length].try_into() else { return Ok(()) };
                Input::Receive(
                    Instant::now(),
                    Receive { proto: Protocol::Udp, source, destination: self.local, contents },
                )
            }
            Err(_) => Input::Timeout(Instant::now()),
        };
        self.rtc.handle_input(input)?;
        Ok(())
    }

    async fn drain(&mut self) -> anyhow::Result<Instant> {
        loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => return Ok(at),
                Output::Transmit(transmit) => {
                    self.socket.send_to(&transmit.contents, transmit.destination).await?;
                }
                Output::Event(event) => self.handle(event),
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected => self.connected = Some(Instant::now()),
            Event::ChannelData(data) => self.events.push(String::from_utf8_lossy(&data.data).into_owned()),
            Event::MediaData(media) => {
                self.packets += 1;
                let mut pcm = [0; 5760 / 3];
                // What is no Opus is not heard, as by any other client.
                if let Ok(samples) = self.decoder.decode(&media.data, &mut pcm) {
                    self.heard.insert(media.time.numer() / 3, pcm[..samples].to_vec());
                }
            }
            _ => {}
        }
    }

    /// One stretch of PCM; gaps in RTP time are silence.
    fn heard_in_order(&self) -> Vec<i16> {
        let Some((&first, _)) = self.heard.first_key_value() else { return Vec::new() };
        let mut whole = Vec::new();
        for (&at, pcm) in &self.heard {
            let Ok(at) = usize::try_from(at - first) else { break };
            whole.resize(at.max(whole.len()), 0);
            whole.truncate(at);
            whole.extend_from_slice(pcm);
        }
        whole
    }
}

/// A client that `client` makes, with its offer: Opus both ways and the events channel. str0m draws three characters for each
/// `a=mid`, and in many thousand offers both lines get the same now and then. RFC 5888 §4 forbids that, and the edge
/// answers 400: so the next client is made.
pub(crate) fn offer(client: impl Fn() -> anyhow::Result<Rtc>) -> anyhow::Result<(Rtc, Mid, String, SdpPendingOffer)> {
    loop {
        let mut rtc = client()?;
        let mut change = rtc.sdp_api();
        let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        change.add_channel("oai-events".into());
        let (offer, pending) = change.apply().context("an offer with media in it")?;
        let text = offer.to_sdp_string();
        if mids_differ(&text) {
            return Ok((rtc, mid, text, pending));
        }
    }
}

fn mids_differ(sdp: &str) -> bool {
    let mids: Vec<&str> = sdp.lines().filter_map(|line| line.strip_prefix("a=mid:")).collect();
    mids.iter().enumerate().all(|(n, mid)| !mids[..n].contains(mid))
}

/// Whose DTLS the callers speak, by the name it gives itself: with the feature `openssl` that of OpenSSL, otherwise
/// that of dimpl, which the edge has too.
#[must_use]
pub fn dtls_provider() -> String {
    format!("{:?}", crypto_provider().dtls_provider)
}

fn rtc_config() -> RtcConfig {
    RtcConfig::new().set_crypto_provider(Arc::new(crypto_provider()))
}

pub(crate) fn crypto_provider() -> CryptoProvider {
    #[cfg(feature = "openssl")]
    return str0m_openssl::default_provider();
    #[cfg(not(feature = "openssl"))]
    return str0m::crypto::from_feature_flags();
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_offer_whose_lines_have_one_name_is_known() {
        assert!(super::mids_differ("m=audio\r\na=mid:abc\r\nm=application\r\na=mid:abd\r\n"));
        assert!(!super::mids_differ("m=audio\r\na=mid:abc\r\nm=application\r\na=mid:abc\r\n"));
    }

    #[test]
    fn callers_speak_the_dtls_that_was_built_in() {
        let name = super::dtls_provider();
        assert_eq!(name.starts_with("Ossl"), cfg!(feature = "openssl"), "{name}");
    }
}
