//! The media loop of the generator: all flows of a run on one thread and one socket.
//!
//! Each flow has a loopback address of its own (127.1.x.y by default), so that the server sees as many 4-tuples as there are
//! callers, while the generator pays for one socket and two system calls per batch.
//!
//! # Run loop
//!
//! [`Driver::turn`]: send the frames that are due, wake the callers whose str0m is due, take HTTP answers, send the batch,
//! receive a batch; when there was nothing to do, wait for the socket or the next due time.
//!
//! # Invariant
//!
//! Frames keep their schedule: a late generator sends what is due, and says by how much it was late.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use net::{BoundSocket, DeadlineTimer, RecvBatch, Reuse, SendBatch, UdpSocket};
use str0m::crypto::dtls::DtlsCert;

use super::call::{self, Call};
use super::dialer::Dialer;
use super::hearing::{Heard, Hearing};
use super::media::Media;
use super::pulse::{Pulse, Seen};
use super::recordings::Recordings;

/// Sends or wake-ups per turn.
const PER_TURN: usize = 64;

/// What is due sooner than this is waited for by looking again: a sleep costs about as much.
const SPIN: Duration = Duration::from_micros(20);

/// HTTP answers are looked for at least this often.
const ANSWERS: Duration = Duration::from_micros(500);

/// How long one set-up may take.
const SETUP: Duration = Duration::from_secs(15);

/// For frames that are on their way when the measured window ends.
const GRACE: Duration = Duration::from_millis(700);

/// What carries a flow's frames.
enum Kind {
    /// The control: packets that are sealed and opened like those of a call, so that the generator works as hard.
    Plain(SocketAddr, Box<Media>),
    Call(Box<Call>),
}

struct Flow {
    kind: Kind,
    /// Since it is up.
    pulse: Option<Pulse>,
    /// Of a caller who speaks and listens: nothing comes back.
    hearing: Option<Hearing>,
}

impl Flow {
    /// Whether anything has come back.
    fn is_up(&self) -> bool {
        self.pulse.as_ref().is_some_and(Pulse::heard)
    }
}

/// A set-up that is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SetUp {
    /// From making the offer to the first frame that came back.
    pub(crate) to_first_frame: Duration,
}

/// What one measured window showed.
#[derive(Debug, Default)]
pub(crate) struct Window {
    pub(crate) seconds: f64,
    /// One per flow that was up, with its number, those that have ended since among them.
    pub(crate) flows: Vec<(usize, Seen)>,
    /// One per flow that listens and is up at the end.
    pub(crate) heard: Vec<Heard>,
    /// By how much frames left after they were due, in nanoseconds: the generator's own fault.
    pub(crate) lags: Vec<u32>,
    /// Set-ups completed inside the window.
    pub(crate) setups: Vec<SetUp>,
    /// Set-ups that failed.
    pub(crate) setup_failures: u64,
    /// Set-ups that were begun and neither completed nor failed until some time after the window.
    pub(crate) setups_unfinished: usize,
    /// Calls that were up and ended by themselves.
    pub(crate) lost_calls: u64,
    /// Datagrams that the generator itself could not send.
    pub(crate) unsent: u64,
}

/// New calls while others run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Storm {
    /// Calls begun per second; 0 begins the next when one is done.
    pub(crate) per_second: f64,
    /// Calls that are being set up at once, at most.
    pub(crate) at_once: usize,
}

/// See the module.
pub(crate) struct Driver {
    socket: UdpSocket,
    timer: DeadlineTimer,
    incoming: RecvBatch,
    outgoing: SendBatch,
    network: Ipv4Addr,
    flows: Vec<Option<Flow>>,
    /// In the order in which they are due. A frame that leaves makes the next one due behind all others, 20 ms later.
    sends: VecDeque<(Instant, usize)>,
    wakes: BinaryHeap<Reverse<(Instant, usize)>>,
    dialer: Option<Dialer>,
    /// What callers say, instead of frames that are to come back.
    recordings: Option<Recordings>,
    certificate: DtlsCert,
    origin: Instant,
    measured: bool,
    lags: Vec<u32>,
    setups: Vec<SetUp>,
    failures: Vec<anyhow::Error>,
    lost_calls: u64,
    setting_up: usize,
    /// The calls of a storm that are under way.
    storming: Vec<usize>,
    /// What calls saw that have ended since the window began.
    ended: Vec<(usize, Seen)>,
}

impl Driver {
    /// A generator without flows. `network` is the first address of its flows: this machine must have it and those that
    /// follow.
    pub(crate) fn new(network: Ipv4Addr) -> anyhow::Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Ok(Self {
            socket: BoundSocket::bind(any, Reuse::Exclusive)?.register()?,
            timer: DeadlineTimer::new()?,
            incoming: RecvBatch::new(),
            outgoing: SendBatch::new(),
            network,
            flows: Vec::new(),
            sends: VecDeque::new(),
            wakes: BinaryHeap::new(),
            dialer: None,
            recordings: None,
            certificate: call::certificate()?,
            origin: Instant::now(),
            measured: false,
            lags: Vec::new(),
            setups: Vec::new(),
            failures: Vec::new(),
            lost_calls: 0,
            setting_up: 0,
            storming: Vec::new(),
            ended: Vec::new(),
        })
    }

    /// Lets `count` plain flows begin towards an echo server.
    pub(crate) fn begin_plain(&mut self, server: SocketAddr, count: usize) -> anyhow::Result<()> {
        let now = Instant::now();
        for _ in 0..count {
            let kind = Kind::Plain(server, Box::new(Media::mirrored()?));
            self.flows.push(Some(Flow { kind, pulse: None, hearing: None }));
            self.start(now, self.flows.len() - 1);
        }
        Ok(())
    }

    /// Calls that post their offers to `url` from now on.
    pub(crate) fn dial_to(&mut self, url: &str) {
        self.dialer = Some(Dialer::new(url));
    }

    /// Callers say this from now on, and listen.
    pub(crate) fn say(&mut self, recordings: Recordings) {
        self.recordings = Some(recordings);
    }

    /// Sets up calls until `count` flows are up, `at_once` at a time. They speak as soon as they are.
    ///
    /// # Errors
    /// The first set-up that failed.
    pub(crate) async fn connect(
        &mut self,
        count: usize,
        at_once: usize,
        progress: &mut dyn FnMut(usize),
    ) -> anyhow::Result<Vec<SetUp>> {
        let mut told = Instant::now();
        while self.flows.len() < count || self.setting_up > 0 {
            while self.flows.len() < count && self.setting_up < at_once {
                self.flows.push(None);
                self.dial(self.flows.len() - 1)?;
            }
            self.turn().await?;
            if let Some(failure) = self.failures.pop() {
                return Err(failure);
            }
            if told.elapsed() > Duration::from_millis(500) {
                told = Instant::now();
                progress(self.flows.len() - self.setting_up);
            }
        }
        Ok(std::mem::take(&mut self.setups))
    }

    /// Lets everything run for a while without measuring.
    pub(crate) async fn settle(&mut self, duration: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + duration;
        while Instant::now() < until {
            self.turn().await?;
        }
        Ok(())
    }

    /// Runs for `duration` and tells what the frames sent in that time saw. `at_ends` is called when the window opens and
    /// when it closes; `progress` each second.
    pub(crate) async fn measure(
        &mut self,
        duration: Duration,
        storm: Option<Storm>,
        at_ends: &mut dyn FnMut() -> anyhow::Result<()>,
        progress: &mut dyn FnMut(Duration),
    ) -> anyhow::Result<Window> {
        for flow in self.flows.iter_mut().flatten() {
            flow.pulse.iter_mut().for_each(|pulse| drop(pulse.take_seen()));
            flow.hearing.iter_mut().for_each(|hearing| drop(hearing.take_heard()));
        }
        self.lags.clear();
        self.setups.clear();
        self.failures.clear();
        self.ended.clear();
        self.lost_calls = 0;
        let unsent = self.unsent();
        at_ends()?;
        let began = Instant::now();
        self.measured = true;
        let (mut told, mut begun) = (0, 0_u32);
        while began.elapsed() < duration {
            if let Some(storm) = storm {
                begun = self.feed(storm, began.elapsed(), begun)?;
            }
            self.turn().await?;
            if began.elapsed().as_secs() > told {
                told = began.elapsed().as_secs();
                progress(began.elapsed());
            }
        }
        self.measured = false;
        let seconds = began.elapsed().as_secs_f64();
        at_ends()?;
        let setups = std::mem::take(&mut self.setups);
        self.settle(GRACE).await?;
        let storming = std::mem::take(&mut self.storming);
        let unfinished = |call: &&usize| self.flows[**call].as_ref().is_some_and(|flow| !flow.is_up());
        let setups_unfinished = storming.iter().filter(unfinished).count();
        storming.iter().for_each(|call| self.end(*call));
        let mut flows = std::mem::take(&mut self.ended);
        let heard = self.flows.iter_mut().flatten().filter_map(|flow| flow.hearing.as_mut());
        let heard = heard.map(Hearing::take_heard).collect();
        for (index, flow) in self.flows.iter_mut().enumerate() {
            let pulse = flow.as_mut().and_then(|flow| flow.pulse.as_mut());
            flows.extend(pulse.map(|pulse| (index, pulse.take_seen())));
        }
        Ok(Window {
            seconds,
            flows,
            heard,
            setups_unfinished,
            lags: std::mem::take(&mut self.lags),
            setups,
            setup_failures: self.failures.len() as u64,
            lost_calls: self.lost_calls,
            unsent: self.unsent() - unsent,
        })
    }

    /// The reason of a set-up that failed in the last window.
    pub(crate) fn failure(&mut self) -> Option<anyhow::Error> {
        self.failures.pop()
    }

    /// Ends calls until no more than `count` are left, all of them up. A call's place is its address, so those behind a lost one
    /// go too: `connect` begins them anew.
    pub(crate) async fn shrink(&mut self, count: usize) -> anyhow::Result<()> {
        let count = self.flows.iter().position(Option::is_none).map_or(count, |lost| count.min(lost));
        if self.flows.len() > count {
            (count..self.flows.len()).for_each(|index| self.end(index));
            self.flows.truncate(count);
            self.settle(Duration::from_secs(1)).await?;
        }
        Ok(())
    }

    /// Ends all calls and waits until that is said.
    pub(crate) async fn hang_up(&mut self) -> anyhow::Result<()> {
        for index in 0..self.flows.len() {
            self.end(index);
        }
        self.settle(Duration::from_millis(200)).await
    }

    /// Ends the calls of a storm that are up and begins as many as are due; gives how many were begun in all. Each has an
    /// address of its own: what the server still says to a call that ended must not reach the next.
    fn feed(&mut self, storm: Storm, elapsed: Duration, mut begun: u32) -> anyhow::Result<u32> {
        let mut index = self.storming.len();
        while index > 0 {
            index -= 1;
            let call = self.storming[index];
            match &self.flows[call] {
                Some(flow) if flow.is_up() => {
                    self.end(call);
                    self.storming.swap_remove(index);
                }
                Some(_) => {}
                None => drop(self.storming.swap_remove(index)),
            }
        }
        let due = |begun: u32| storm.per_second == 0.0 || f64::from(begun) < elapsed.as_secs_f64() * storm.per_second;
        while self.setting_up < storm.at_once && due(begun) {
            self.flows.push(None);
            self.dial(self.flows.len() - 1)?;
            self.storming.push(self.flows.len() - 1);
            begun += 1;
        }
        Ok(begun)
    }

    fn dial(&mut self, index: usize) -> anyhow::Result<()> {
        let Some(dialer) = &self.dialer else { bail!("nowhere to call") };
        let (call, sdp) = Call::new(Instant::now(), self.address(index)?, &self.certificate)?;
        dialer.offer(index, sdp);
        self.flows[index] = Some(Flow { kind: Kind::Call(Box::new(call)), pulse: None, hearing: None });
        self.setting_up += 1;
        Ok(())
    }

    fn end(&mut self, index: usize) {
        let Some(mut flow) = self.flows[index].take() else { return };
        let up = flow.is_up();
        let Kind::Call(call) = &mut flow.kind else { return };
        if !up {
            self.setting_up -= 1;
        }
        self.ended.extend(flow.pulse.as_mut().map(|pulse| (index, pulse.take_seen())));
        call.close();
        let _ = call.drain(&mut self.outgoing);
        if let (Some(dialer), Some(location)) = (&self.dialer, call.location.take()) {
            dialer.hang_up(location);
        }
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let sent = self.send_due(now)?;
        let woken = self.wake_due(now);
        self.take_answers();
        self.socket.send_batch(&mut self.outgoing);
        let received = self.socket.try_recv_batch(&mut self.incoming)?;
        if received > 0 {
            self.deliver();
        } else if sent + woken == 0 {
            self.wait(now).await?;
        }
        Ok(())
    }

    async fn wait(&mut self, now: Instant) -> anyhow::Result<()> {
        let send = self.sends.front().map(|(at, _)| *at);
        let wake = self.wakes.peek().map(|Reverse((at, _))| *at);
        let until = [send, wake, Some(now + ANSWERS)].into_iter().flatten().min().unwrap_or(now);
        if until < now + SPIN {
            std::hint::spin_loop();
            return Ok(());
        }
        self.timer.set(until);
        let received = tokio::select! {
            received = self.socket.recv_batch(&mut self.incoming) => received?,
            _ = self.timer.wait() => 0,
        };
        if received > 0 {
            self.deliver();
        }
        Ok(())
    }

    fn send_due(&mut self, now: Instant) -> anyhow::Result<usize> {
        let mut done = 0;
        while done < PER_TURN
            && let Some((due, index)) = self.sends.front().copied()
            && due <= now
        {
            self.sends.pop_front();
            let local = self.address(index)?;
            let Some(Flow { kind, pulse: Some(pulse), hearing }) = self.flows.get_mut(index).and_then(Option::as_mut)
            else {
                continue;
            };
            // An entry of a flow that had this place before.
            if pulse.due() != due {
                continue;
            }
            if self.measured {
                self.lags.push(u32::try_from((now - due).as_nanos()).unwrap_or(u32::MAX));
            }
            let count = pulse.leave(now, self.measured);
            schedule(&mut self.sends, pulse.due(), index);
            match kind {
                Kind::Plain(server, media) => self.outgoing.push(local, *server, &media.seal(count)?),
                Kind::Call(call) => {
                    let (Some(media), Some(server)) = (&mut call.media, call.server) else { continue };
                    let sealed = match (&self.recordings, hearing) {
                        (Some(recordings), Some(hearing)) => {
                            let (payload, last) = recordings.packet(index, count);
                            if last {
                                hearing.turn_ended(now, self.measured);
                            }
                            media.seal_payload(count, payload)?
                        }
                        _ => media.seal(count)?,
                    };
                    self.outgoing.push(local, server, &sealed);
                }
            }
            done += 1;
        }
        Ok(done)
    }

    fn wake_due(&mut self, now: Instant) -> usize {
        let mut done = 0;
        while done < PER_TURN
            && let Some(Reverse((at, index))) = self.wakes.peek().copied()
            && at <= now
        {
            self.wakes.pop();
            let Some(Flow { kind: Kind::Call(call), .. }) = self.flows.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            if call.armed != Some(at) {
                continue;
            }
            call.armed = None;
            let result = call.timeout(now);
            self.after(now, index, result);
            done += 1;
        }
        done
    }

    fn take_answers(&mut self) {
        let answers = self.dialer.as_ref().map(Dialer::answers).unwrap_or_default();
        for answered in answers {
            let now = Instant::now();
            let Some(Flow { kind: Kind::Call(call), .. }) =
                self.flows.get_mut(answered.caller).and_then(Option::as_mut)
            else {
                continue;
            };
            let result = answered.result.and_then(|(sdp, location)| call.answer(&sdp, location));
            let result = result.and_then(|()| call.timeout(now));
            self.after(now, answered.caller, result);
        }
    }

    fn deliver(&mut self) {
        let now = Instant::now();
        let mut others = Vec::new();
        for datagram in self.incoming.iter_mut() {
            let Some(index) = index(self.network, datagram.local) else { continue };
            let Some(Some(flow)) = self.flows.get_mut(index) else { continue };
            let opened = match &mut flow.kind {
                Kind::Plain(_, media) => media.open(datagram.bytes),
                Kind::Call(call) => match &mut call.media {
                    Some(media) if is_rtp(datagram.bytes) => media.open(datagram.bytes),
                    _ => {
                        others.push((index, call.receive(now, datagram.remote, datagram.bytes)));
                        continue;
                    }
                },
            };
            let (Some(pulse), Some(opened)) = (&mut flow.pulse, opened) else { continue };
            let first = !pulse.heard();
            match (&mut flow.hearing, opened.count) {
                (Some(hearing), _) => {
                    hearing.packet(now, &opened, self.measured);
                    pulse.hear();
                }
                (None, Some(count)) => pulse.back(now, count),
                (None, None) => continue,
            }
            if let (true, Kind::Call(call)) = (first, &flow.kind) {
                self.setting_up -= 1;
                self.setups.push(SetUp { to_first_frame: now - call.began });
            }
        }
        for (index, result) in others {
            self.after(now, index, result);
        }
    }

    /// Drains a call after an input, starts its audio once it is up, and gives it up when it cannot be set up.
    fn after(&mut self, now: Instant, index: usize, result: anyhow::Result<()>) {
        let Some(Flow { kind: Kind::Call(call), pulse, .. }) = self.flows[index].as_mut() else { return };
        let fresh = pulse.as_ref().is_none_or(|pulse| !pulse.heard());
        let next = result.and_then(|()| call.drain(&mut self.outgoing)).and_then(|next| match next {
            Some(_) if fresh && now - call.began > SETUP => bail!("no audio came back within {} s", SETUP.as_secs()),
            Some(next) => Ok(next),
            None => bail!("the call ended"),
        });
        match next {
            Ok(next) => {
                if call.armed.is_none_or(|armed| next < armed) {
                    call.armed = Some(next);
                    self.wakes.push(Reverse((next, index)));
                }
                if call.is_up() && pulse.is_none() {
                    self.start(now, index);
                }
            }
            Err(error) => {
                self.end(index);
                if fresh {
                    self.failures.push(error.context(format!("caller {index}")));
                } else {
                    self.lost_calls += 1;
                }
            }
        }
    }

    fn start(&mut self, now: Instant, index: usize) {
        let pulse = Pulse::new(self.origin, now, index);
        schedule(&mut self.sends, pulse.due(), index);
        if let Some(flow) = &mut self.flows[index] {
            flow.pulse = Some(pulse);
            flow.hearing = self.recordings.as_ref().map(|_| Hearing::new(now));
        }
    }

    fn address(&self, index: usize) -> anyhow::Result<SocketAddr> {
        let offset = u32::try_from(index).ok().and_then(|i| u32::from(self.network).checked_add(i));
        let address = offset.context("more flows than addresses")?;
        Ok(SocketAddr::from((Ipv4Addr::from(address), self.socket.local_addr().port())))
    }

    fn unsent(&self) -> u64 {
        let stats = self.outgoing.stats();
        stats.dropped + stats.oversize + stats.failed
    }
}

fn schedule(sends: &mut VecDeque<(Instant, usize)>, due: Instant, index: usize) {
    if sends.back().is_none_or(|(last, _)| *last <= due) {
        sends.push_back((due, index));
    } else {
        sends.insert(sends.partition_point(|(other, _)| *other <= due), (due, index));
    }
}

fn index(network: Ipv4Addr, local: SocketAddr) -> Option<usize> {
    let SocketAddr::V4(local) = local else { return None };
    u32::from(*local.ip()).checked_sub(u32::from(network)).and_then(|offset| usize::try_from(offset).ok())
}

/// RFC 7983 §7 and RFC 5761 §4: RTP and not RTCP.
fn is_rtp(datagram: &[u8]) -> bool {
    matches!(datagram, [128..=191, kind, ..] if !matches!(kind & 0x7f, 64..=95))
}
