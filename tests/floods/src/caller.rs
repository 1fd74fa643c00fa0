//! One caller: connects to the echo, sends a frame each 20 ms and notes when each comes back.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::media::{Direction, Frequency, MediaKind, MediaTime, Mid};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Event, Input, Output, Rtc, RtcConfig};
use tokio::net::UdpSocket;

const FRAME: Duration = Duration::from_millis(20);

/// For the last frames of a stretch of talk to come back.
const LAST: Duration = Duration::from_millis(100);

/// How long a set-up may take.
const CONNECT: Duration = Duration::from_secs(15);

/// Every so many frames a forged packet goes out as well, where that is asked for.
const FORGED_EACH: u64 = 2;

/// Round trips in microseconds, of all callers.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) round_trips: Vec<u32>,
    pub(crate) sent: u64,
    /// Datagrams that str0m refused.
    pub(crate) foreign: u64,
    /// Callers add forged SRTP on their own 4-tuples.
    pub(crate) forge: bool,
}

/// A call.
pub(crate) struct Caller {
    rtc: Rtc,
    mid: Mid,
    socket: UdpSocket,
    local: SocketAddr,
    edge: SocketAddr,
    url: String,
    location: String,
    connected: bool,
    began: Instant,
    media_time: u64,
    last_media: Vec<u8>,
    pub(crate) first_check: Vec<u8>,
    heard: Rc<RefCell<Heard>>,
}

/// Posts an offer and takes it back, for ever: a line in the log each time.
pub(crate) async fn call_and_hang_up(url: String) -> anyhow::Result<()> {
    let (_, _, offer, _) = offer(SocketAddr::from(([127, 0, 0, 1], 9)))?;
    loop {
        let (status, location, _) = post(&url, offer.clone()).await?;
        if status == 201 {
            let url = format!("{url}{location}");
            tokio::task::spawn_blocking(move || ureq::delete(&url).call().map(drop)).await??;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A client with its offer. str0m draws three characters for each mid, and in many thousand offers two of one are equal now
/// and then: such an offer is refused, rightly, so another one is made.
fn offer(local: SocketAddr) -> anyhow::Result<(Rtc, Mid, String, SdpPendingOffer)> {
    loop {
        let made = one_offer(local)?;
        let mut mids: Vec<&str> = made.2.lines().filter_map(|line| line.strip_prefix("a=mid:")).collect();
        mids.sort_unstable();
        if mids.windows(2).all(|pair| pair[0] != pair[1]) {
            return Ok(made);
        }
    }
}

fn one_offer(local: SocketAddr) -> anyhow::Result<(Rtc, Mid, String, SdpPendingOffer)> {
    let mut rtc = RtcConfig::new().build(Instant::now());
    rtc.add_local_candidate(Candidate::host(local, "udp")?);
    let mut change = rtc.sdp_api();
    let mid = change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
    change.add_channel("oai-events".into());
    let (offer, pending) = change.apply().context("an offer with media in it")?;
    Ok((rtc, mid, offer.to_sdp_string(), pending))
}

/// Posts an offer; status, Location and body.
async fn post(url: &str, offer: String) -> anyhow::Result<(u16, String, String)> {
    let url = format!("{url}/v1/realtime/calls?model=echo");
    tokio::task::spawn_blocking(move || {
        let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
        let mut response = agent.post(&url).content_type("application/sdp").send(&offer)?;
        let location = response.headers().get("location").and_then(|l| l.to_str().ok()).unwrap_or_default().to_owned();
        Ok((response.status().as_u16(), location, response.body_mut().read_to_string()?))
    })
    .await?
}

impl Caller {
    /// A connected call.
    pub(crate) async fn connect(url: &str, heard: Rc<RefCell<Heard>>) -> anyhow::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0").await?;
        let local = socket.local_addr()?;
        let (mut rtc, mid, offer, pending) = offer(local)?;
        let (status, location, answer) = post(url, offer).await?;
        if status != 201 {
            bail!("the offer was answered {status}: {answer}");
        }
        rtc.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer)?)?;
        let mut caller = Self {
            rtc,
            mid,
            socket,
            local,
            edge: local,
            url: url.to_owned(),
            location,
            connected: false,
            began: Instant::now(),
            media_time: 0,
            last_media: Vec::new(),
            first_check: Vec::new(),
            heard,
        };
        while !caller.connected {
            if caller.began.elapsed() > CONNECT {
                bail!("not connected within {} s", CONNECT.as_secs());
            }
            caller.turn(Instant::now() + FRAME).await?;
        }
        Ok(caller)
    }

    /// Talks until `until`.
    pub(crate) async fn talk(&mut self, until: Instant) -> anyhow::Result<()> {
        // Callers do not all speak in the same instant.
        let phase = Duration::from_micros(u64::from(self.local.port()) * 7919 % 20_000);
        let mut due = Instant::now() + phase;
        while due < until {
            while Instant::now() < due {
                self.turn(due).await?;
            }
            self.speak()?;
            due += FRAME;
        }
        Ok(())
    }

    /// Hears the last frames, which are on their way back.
    pub(crate) async fn hear_out(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + LAST;
        while Instant::now() < end {
            self.turn(end).await?;
        }
        Ok(())
    }

    /// Hangs up, and waits until that is answered.
    pub(crate) async fn hang_up(self) -> anyhow::Result<()> {
        let url = format!("{}{}", self.url, self.location);
        tokio::task::spawn_blocking(move || ureq::delete(&url).call().map(drop)).await?.context("hanging up")
    }

    fn speak(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let stamp = u64::try_from((now - self.began).as_micros())?;
        let mut payload = vec![7; 100];
        payload[1..9].copy_from_slice(&stamp.to_be_bytes());
        let Some(writer) = self.rtc.writer(self.mid) else { bail!("the audio line is gone") };
        let Some(opus) = writer.payload_params().next().map(|params| params.pt()) else { bail!("no Opus agreed") };
        writer.write(opus, now, MediaTime::new(self.media_time, Frequency::FORTY_EIGHT_KHZ), payload)?;
        // It leaves at once, not when str0m is asked next.
        self.rtc.handle_input(Input::Timeout(now))?;
        self.media_time += 960;
        let mut heard = self.heard.borrow_mut();
        heard.sent += 1;
        if heard.forge && heard.sent.is_multiple_of(FORGED_EACH) && !self.last_media.is_empty() {
            // The newest packet with another sequence number and so another tag than it would need.
            let mut forged = self.last_media.clone();
            forged[3] ^= 0x40;
            let _ = self.socket.try_send_to(&forged, self.edge);
        }
        Ok(())
    }

    /// Sends what there is to send, then waits for one datagram or the next thing to do.
    async fn turn(&mut self, until: Instant) -> anyhow::Result<()> {
        let timeout = loop {
            match self.rtc.poll_output()? {
                Output::Timeout(at) => break at,
                Output::Transmit(transmit) => {
                    self.edge = transmit.destination;
                    match rtc::classify(&transmit.contents) {
                        rtc::Class::Stun if self.first_check.is_empty() => {
                            self.first_check = transmit.contents.to_vec();
                        }
                        rtc::Class::Rtp => self.last_media = transmit.contents.to_vec(),
                        _ => {}
                    }
                    // What the kernel has no room for is lost, as on any network.
                    let _ = self.socket.try_send_to(&transmit.contents, transmit.destination);
                }
                Output::Event(Event::Connected) => self.connected = true,
                Output::Event(Event::MediaData(media)) => self.note(&media.data),
                Output::Event(_) => {}
            }
        };
        let mut buffer = [0; 2048];
        let wake = timeout.min(until).max(Instant::now());
        let Ok(received) = tokio::time::timeout_at(wake.into(), self.socket.recv_from(&mut buffer)).await else {
            self.rtc.handle_input(Input::Timeout(Instant::now()))?;
            return Ok(());
        };
        let (length, source) = received?;
        let Ok(contents) = buffer[..length].try_into() else { return Ok(()) };
        let receive = Receive { proto: Protocol::Udp, source, destination: self.local, contents };
        if self.rtc.handle_input(Input::Receive(Instant::now(), receive)).is_err() {
            // The kernel gives a port to the next call within milliseconds: the goodbye to the former one may still come, and
            // a record of another association is to be dropped (RFC 9147 §4.5.2). A call of its own that breaks hears no more.
            self.heard.borrow_mut().foreign += 1;
        }
        Ok(())
    }

    fn note(&self, payload: &[u8]) {
        let Some(stamp) = payload.get(1..9).and_then(|stamp| stamp.try_into().ok()).map(u64::from_be_bytes) else {
            return;
        };
        let now = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let round_trip = u32::try_from(now.saturating_sub(stamp)).unwrap_or(u32::MAX);
        self.heard.borrow_mut().round_trips.push(round_trip);
    }
}
