//! What is known of the way to the client, in virtual time.

use sim::Random;

use super::*;
use crate::rtcp;

const FRAME: Duration = Duration::from_millis(20);

/// A client behind a way of `way` each way, on a clock of its own, that tells each 100 ms.
struct Rig {
    begin: Instant,
    now: Instant,
    downlink: Downlink,
    /// Sequence number and arrival in milliseconds since the begin, in the order of arrival.
    arrived: Vec<(u16, u64)>,
    told: u16,
}

impl Rig {
    fn new() -> Self {
        let begin = Instant::now();
        let mut downlink = Downlink::default();
        downlink.agree(begin, true);
        Self { begin, now: begin, downlink, arrived: vec![], told: 0 }
    }

    /// Sends one packet that takes `ms`, or is lost.
    fn send(&mut self, label: u32, ms: Option<u64>) {
        let seq = self.downlink.on_sent(self.now, label, 960).unwrap();
        let at = u64::try_from((self.now - self.begin).as_millis()).unwrap();
        self.arrived.extend(ms.map(|ms| (seq, at + ms)));
        self.now += FRAME;
    }

    /// Feedback about all that arrived by `now - way` and was not told of.
    fn tell(&mut self, way: u64) {
        let now = u64::try_from((self.now - self.begin).as_millis()).unwrap().saturating_sub(way);
        let mut come: Vec<_> = self.arrived.iter().copied().filter(|(_, at)| *at <= now).collect();
        self.arrived.retain(|(_, at)| *at > now);
        come.sort_unstable();
        let Some((last, _)) = come.last().copied() else { return };
        let base = self.told.min(come[0].0);
        self.told = last + 1;
        // The clock of the client is 77 s ahead, cut to the 64 ms that a reference time counts.
        let reference = u32::try_from(come[0].1 / 64).unwrap() + 1203;
        let mut body = vec![0; 8];
        body.extend_from_slice(&base.to_be_bytes());
        body.extend_from_slice(&(last - base + 1).to_be_bytes());
        body.extend_from_slice(&reference.to_be_bytes()[1..]);
        body.push(0);
        let (mut deltas, mut clock) = (Vec::new(), i64::try_from(come[0].1 / 64 * 256).unwrap());
        for seq in base..=last {
            let found = come.iter().find(|(arrived, _)| *arrived == seq);
            body.extend_from_slice(if found.is_some() { &[0x40, 1] } else { &[0, 1] });
            if let Some((_, at)) = found {
                let ticks = i64::try_from(at * 4).unwrap();
                deltas.extend_from_slice(&i16::try_from(ticks - clock).unwrap().to_be_bytes());
                clock = ticks;
            }
        }
        body.extend_from_slice(&deltas);
        body.resize(body.len().next_multiple_of(4), 0);
        let words = u16::try_from(body.len() / 4).unwrap().to_be_bytes();
        let packet = [&[0x8f, 205, words[0], words[1]][..], &body].concat();
        let rtcp::Item::Feedback(feedback) = rtcp::parse(&packet).next().unwrap().unwrap() else { panic!() };
        self.downlink.on_feedback(self.now, &feedback);
    }

    fn view(&self, label: u32) -> DownlinkView {
        self.downlink.view(label, None).unwrap()
    }
}

#[test]
fn nothing_is_known_before_the_client_says_something() {
    let mut rig = Rig::new();
    rig.send(1, Some(10));
    assert_eq!(rig.downlink.view(1, None), None);
}

#[test]
fn each_lost_packet_is_counted_under_its_label_once() {
    let mut rig = Rig::new();
    for n in 0..50 {
        rig.send(if n < 30 { 1 } else { 2 }, (n % 10 != 3).then_some(10));
        if n % 5 == 4 {
            rig.tell(10);
        }
    }
    rig.now += FRAME;
    rig.tell(10);
    assert_eq!((rig.view(1).lost, rig.view(2).lost, rig.view(3).lost), (3 * 960, 2 * 960, 0));
    assert!(rig.view(1).transport_wide);
    let loss = rig.view(1).loss;
    assert!((10..=35).contains(&loss), "{loss}/256 of 10 %");
}

#[test]
fn a_late_packet_was_not_lost_after_all() {
    let mut rig = Rig::new();
    for n in 0..20 {
        rig.send(1, Some(if n == 5 { 250 } else { 10 }));
        rig.tell(10);
        if n == 10 {
            assert_eq!(rig.view(1).lost, 960);
        }
    }
    assert_eq!(rig.view(1).lost, 0);
}

#[test]
fn round_trip_and_delay_come_from_the_arrivals() {
    for (way, jitter, steps) in [(30, 0, 0), (30, 50, 2), (200, 110, 5)] {
        let mut rig = Rig::new();
        let mut rng = Random::new(9, 0);
        for n in 0..1000 {
            rig.send(1, Some(way + if jitter == 0 { 0 } else { rng.below(jitter + 1) }));
            if n % 5 == 4 {
                rig.tell(way);
            }
        }
        let view = rig.view(1);
        let rtt = u64::from(view.rtt_us) / 1000;
        assert!((2 * way..=2 * way + 20 + 1).contains(&rtt), "{rtt} ms of {}", 2 * way);
        assert_eq!(view.delay_us, Some((steps + 1) * 20_000), "jitter {jitter}");
    }
}

#[test]
fn the_round_trip_of_a_report_counts_if_it_is_shorter() {
    let mut rig = Rig::new();
    rig.send(1, Some(10));
    rig.now += FRAME;
    rig.tell(10);
    assert_eq!(rig.view(1).rtt_us, 40_000, "sent 40 ms ago");
    assert_eq!(rig.downlink.view(1, Some(Duration::from_millis(20))).unwrap().rtt_us, 20_000);
    assert_eq!(rig.downlink.view(1, Some(Duration::from_millis(70))).unwrap().rtt_us, 40_000);
}

fn block(fraction_lost: u8, cumulative_lost: i32, jitter: u32) -> ReportBlock {
    ReportBlock { ssrc: 1, fraction_lost, cumulative_lost, highest_seq: 0, jitter, last_sr: 0, delay_since_last_sr: 0 }
}

#[test]
fn reports_alone_spread_the_loss_over_what_was_sent() {
    let mut downlink = Downlink::default();
    let now = Instant::now();
    for _ in 0..50 {
        assert_eq!(downlink.on_sent(now, 0, 0), None);
    }
    for _ in 0..50 {
        downlink.on_sent(now, 4, 960);
    }
    downlink.on_report(&block(26, 10, 480), 48_000);
    let view = downlink.view(4, Some(Duration::from_millis(50))).unwrap();
    let expected =
        DownlinkView { rtt_us: 50_000, delay_us: Some(40_000), lost: 5 * 960, loss: 26, transport_wide: false };
    assert_eq!(view, expected, "half of the packets were of the label; three times 10 ms of jitter are one step");
    downlink.on_report(&block(0, 10, 0), 48_000);
    assert_eq!(downlink.view(4, None).unwrap().lost, 5 * 960, "nothing more was lost");
    downlink.on_sent(now, 4, 960);
    downlink.on_report(&block(255, i32::MAX, u32::MAX), 48_000);
    let view = downlink.view(4, None).unwrap();
    assert_eq!(view.lost, 6 * 960, "no more than was sent");
    downlink.on_report(&block(0, i32::MIN, 0), 48_000);
    assert_eq!(downlink.view(4, None).unwrap().lost, 6 * 960);
}

#[test]
fn feedback_about_packets_that_were_never_sent_says_nothing() {
    for seed in 0..2000 {
        let mut rng = Random::new(seed, 0);
        let mut rig = Rig::new();
        let sent = u16::try_from(rng.below(600)).unwrap();
        for _ in 0..sent {
            rig.send(1, None);
        }
        for _ in 0..=rng.below(4) {
            let base = u16::try_from(rng.below(1200)).unwrap();
            let count = u16::try_from(1 + rng.below(999)).unwrap();
            let symbol = u16::from(rng.chance(0.5)) << 13;
            let mut body = vec![0; 8];
            body.extend_from_slice(&base.wrapping_sub(300).to_be_bytes());
            body.extend_from_slice(&count.to_be_bytes());
            body.extend_from_slice(&rng.bits().to_be_bytes()[..4]);
            body.extend_from_slice(&(symbol | count).to_be_bytes());
            body.extend((0..if symbol == 0 { 0 } else { count }).map(|_| u8::try_from(rng.below(256)).unwrap()));
            body.resize(body.len().next_multiple_of(4), 0);
            let words = u16::try_from(body.len() / 4).unwrap().to_be_bytes();
            let packet = [&[0x8f, 205, words[0], words[1]][..], &body].concat();
            let Some(Ok(rtcp::Item::Feedback(feedback))) = rtcp::parse(&packet).next() else { panic!("seed {seed}") };
            rig.downlink.on_feedback(rig.now, &feedback);
        }
        let lost = rig.downlink.view(1, None).map_or(0, |view| view.lost);
        assert!(lost <= u64::from(sent.min(LOG)) * 960, "seed {seed}: {lost} of {sent}");
    }
}
