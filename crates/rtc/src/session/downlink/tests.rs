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
    next: u16,
    told: u16,
}

impl Rig {
    fn new() -> Self {
        let begin = Instant::now();
        let mut downlink = Downlink::default();
        downlink.start(begin);
        Self { begin, now: begin, downlink, arrived: vec![], next: 0, told: 0 }
    }

    /// Sends one packet that takes `ms`, or is lost.
    fn send(&mut self, label: u32, ms: Option<u64>) {
        let seq = self.next;
        self.next += 1;
        self.downlink.on_sent(self.now, seq, label, 960);
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
fn what_arrived_of_each_label_ends_with_its_last_packet_that_came() {
    let mut rig = Rig::new();
    for n in 0..50 {
        // Of the first label the last three are lost, which what comes of the second shows.
        let lost = n % 10 == 3 || (27..30).contains(&n);
        rig.send(if n < 30 { 1 } else { 2 }, (!lost).then_some(10));
        if n % 5 == 4 {
            rig.tell(10);
        }
        if n == 29 {
            assert_eq!((rig.view(1).arrived, rig.view(1).lost), (27 * 960, 0), "nobody knows yet");
        }
    }
    rig.now += FRAME;
    rig.tell(10);
    let told = |label| (rig.view(label).arrived, rig.view(label).lost);
    assert_eq!((told(1), told(2), told(3)), ((27 * 960, 3 * 960), (20 * 960, 0), (0, 0)));
    assert!(rig.view(1).transport_wide);
    let loss = rig.view(1).loss;
    assert!((10..=45).contains(&loss), "{loss}/256 of 16 %");
}

#[test]
fn a_burst_in_the_middle_is_passed_however_late_it_is_told() {
    let mut rig = Rig::new();
    for n in 0..40 {
        rig.send(1, (!(15..25).contains(&n)).then_some(10));
        rig.tell(200);
        let lost = rig.downlink.view(1, None).map_or(0, |view| view.lost);
        assert_eq!(lost, 0, "packet {n}");
    }
    rig.now += Duration::from_millis(200);
    rig.tell(10);
    assert_eq!((rig.view(1).arrived, rig.view(1).lost), (40 * 960, 0));
}

#[test]
fn a_late_packet_was_not_lost_after_all() {
    let mut rig = Rig::new();
    for n in 0..8 {
        rig.send(if n < 6 { 1 } else { 2 }, Some(if n == 5 { 250 } else { 10 }));
    }
    rig.tell(10);
    assert_eq!((rig.view(1).arrived, rig.view(1).lost), (5 * 960, 960));
    rig.now += Duration::from_millis(250);
    rig.tell(10);
    assert_eq!((rig.view(1).arrived, rig.view(1).lost), (6 * 960, 0));
}

#[test]
fn what_the_client_tells_is_numbered_and_what_says_nothing_more_is_not() {
    let mut rig = Rig::new();
    rig.send(1, Some(10));
    rig.send(1, Some(10));
    rig.tell(10);
    let told = rig.view(1).told;
    rig.arrived.push((0, 10));
    rig.told = 0;
    rig.tell(10);
    assert_eq!(rig.view(1).told, told);
    rig.send(1, Some(10));
    rig.now += FRAME;
    rig.tell(10);
    assert_eq!(rig.view(1).told, told + 1);
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
fn each_label_is_told_of() {
    for label in (1..=600).chain([u32::MAX - 1, u32::MAX]) {
        let mut rig = Rig::new();
        rig.send(label - 1, Some(10));
        rig.send(label, Some(10));
        rig.now += FRAME;
        rig.tell(10);
        assert_eq!(rig.view(label).arrived, 960, "label {label}");
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

fn block(fraction_lost: u8, highest_seq: u32, jitter: u32) -> ReportBlock {
    ReportBlock { ssrc: 1, fraction_lost, cumulative_lost: 0, highest_seq, jitter, last_sr: 0, delay_since_last_sr: 0 }
}

const RTT: Duration = Duration::from_millis(50);

/// Half of 2 s of silence, half of an item, on a clock that begins with the first number before a wrap.
fn reported(highest_seq: u32, jitter: u32, rtt: Option<Duration>) -> DownlinkView {
    let mut downlink = Downlink::default();
    let mut now = Instant::now();
    downlink.start(now);
    for n in 0..100_u16 {
        let label = if n < 50 { 0 } else { 4 };
        downlink.on_sent(now, 65_500_u16.wrapping_add(n), label, 960);
        now += FRAME;
    }
    downlink.on_report(now, &block(26, highest_seq, jitter), 48_000, rtt);
    downlink.view(4, rtt).unwrap()
}

#[test]
fn reports_alone_say_up_to_where_the_item_came() {
    // 65,500 + 99 is 63 behind the wrap.
    let expected = DownlinkView {
        rtt_us: 50_000,
        delay_us: Some(50_000),
        arrived: 50 * 960,
        lost: 0,
        loss: 26,
        told: 1,
        transport_wide: false,
    };
    assert_eq!(reported(0x1_003f, 480, Some(RTT)), expected, "three times 10 ms of jitter are one step");
    // Ten more were sent; the last four of them less than the round trip and 30 ms of jitter ago.
    let expected = DownlinkView { arrived: 40 * 960, lost: 6 * 960, ..expected };
    assert_eq!(reported(0x1_0035, 480, Some(RTT)), expected);
    let unknown = DownlinkView { rtt_us: 0, lost: 0, ..expected };
    assert_eq!(reported(0x1_0035, 480, None), unknown, "nobody knows what is on its way");
}

#[test]
fn reports_that_cannot_be_say_nothing_beyond_what_was_sent() {
    for (highest_seq, jitter) in [(0x1_2000, 0), (0, u32::MAX), (u32::MAX, u32::MAX), (0x1_9000, 1)] {
        let view = reported(highest_seq, jitter, Some(RTT));
        assert!(view.arrived + view.lost <= 50 * 960, "{view:?}");
    }
}

#[test]
fn reports_count_until_the_first_feedback_comes() {
    let mut rig = Rig::new();
    for _ in 0..10 {
        rig.send(1, Some(10));
    }
    rig.downlink.on_report(rig.now, &block(64, 4, 0), 48_000, Some(RTT));
    assert_eq!((rig.view(1).loss, rig.view(1).arrived, rig.view(1).transport_wide), (64, 5 * 960, false));
    rig.now += FRAME;
    rig.tell(10);
    rig.downlink.on_report(rig.now, &block(200, 2, 0), 48_000, Some(RTT));
    assert!(rig.view(1).transport_wide && rig.view(1).loss < 64, "{:?}", rig.view(1));
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
        let known = rig.downlink.view(1, None).map_or(0, |view| view.arrived + view.lost);
        assert!(known <= u64::from(sent) * 960, "seed {seed}: {known} of {sent}");
    }
}
