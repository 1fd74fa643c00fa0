//! Where a reply ended and where the user was in it, against a client that plays out: jitter buffer, loss, underruns, and speech
//! right after a burst of the backend's. The figures are printed: `cargo nextest run -p voice --test positions --no-capture`.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::print_stdout,
    reason = "a test may fail, its signals fit, and its figures are read"
)]

mod common;

use std::time::{Duration, Instant};

use common::speech::Random;
use common::{Bench, speech};
use voice::{AgentAudio, BackendInput, BackendOutput, ClientView, Config, Event, Output, Received};

/// Runs, each with its own ways and its own client.
const RUNS: u32 = 36;

/// Item samples in a millisecond.
const MS: i64 = 48;

/// How the backend gives its audio.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Gives {
    AtOnce,
    /// 600 ms each 700 ms: the edge runs dry.
    Late,
    /// The same, and the user speaks right behind a burst.
    LateAndCut,
}

/// What the edge knows the client by.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Told {
    /// Transport-wide feedback each 100 ms; the delay is measured to 5 ms.
    Feedback,
    /// Receiver reports each 5 s: the delay is three times the jitter, in steps of 20 ms, and one and a half.
    Reports,
}

/// A client that plays each packet so long after it left the edge, unless it is lost.
struct Client {
    told: Told,
    rtt: Duration,
    /// Packets come up to so much late, evenly; the buffer's delay is for nearly the latest, and the device's comes to it.
    jitter_ms: u32,
    delay: Duration,
    /// Of the last report, and when the next comes.
    view: Option<ClientView>,
    next_report: Option<Instant>,
    /// Of the frames on the wire, by their number.
    lost: Vec<bool>,
    random: Random,
}

impl Client {
    fn new(seed: u32, told: Told) -> Self {
        let mut random = Random(seed);
        let rtt = Duration::from_millis(u64::from(20 + random.below(100)));
        let (jitter_ms, delay_ms) = match told {
            Told::Feedback => (0, 40 + random.below(80)),
            Told::Reports => {
                let jitter_ms = random.below(60);
                (jitter_ms, jitter_ms * 19 / 20 / 20 * 20 + 20 + random.below(30))
            }
        };
        let delay = Duration::from_millis(delay_ms.into());
        Self { told, rtt, jitter_ms, delay, view: None, next_report: None, lost: Vec::new(), random }
    }

    /// Sees what is on the wire: one frame in twenty is lost.
    fn see(&mut self, frames: usize) {
        while self.lost.len() < frames {
            let lost = self.random.below(100) < 5;
            self.lost.push(lost);
        }
    }

    /// What the edge knows of it now.
    fn view(&mut self, now: Instant, wire: &[(Instant, Vec<u8>)]) -> Option<ClientView> {
        match self.told {
            Told::Feedback => Some(self.feedback(now, wire)),
            Told::Reports => {
                let first = Duration::from_millis(self.random.below(5000).into());
                let due = self.next_report.get_or_insert(now + first);
                if *due <= now {
                    *due += Duration::from_secs(5);
                    self.view = Some(self.report(now, wire));
                }
                self.view
            }
        }
    }

    fn feedback(&mut self, now: Instant, wire: &[(Instant, Vec<u8>)]) -> ClientView {
        let delay_us = self.delay.as_micros() as u32 + self.random.below(10_000) - 5000;
        ClientView {
            rtt_us: self.rtt.as_micros() as u32,
            delay_us: Some(delay_us),
            received: self.received(now - Duration::from_millis(100), wire),
            loss: 13,
            told: 0,
            transport_wide: true,
        }
    }

    fn report(&mut self, now: Instant, wire: &[(Instant, Vec<u8>)]) -> ClientView {
        // The mean difference of two packets is a third of the most; it wavers by a fifth.
        let jitter_us = self.jitter_ms * 1000 / 3 * (80 + self.random.below(40)) / 100;
        ClientView {
            rtt_us: self.rtt.as_micros() as u32,
            delay_us: Some(jitter_us * 3 / 20_000 * 20_000 + 30_000),
            received: self.received(now, wire),
            loss: 13,
            told: 0,
            transport_wide: false,
        }
    }

    /// What it had got when it said what reaches the edge at `at`.
    fn received(&self, at: Instant, wire: &[(Instant, Vec<u8>)]) -> Received {
        let known = wire.iter().take_while(|(sent, _)| *sent + self.rtt <= at).count();
        let came = self.lost[..known].iter().rposition(|lost| !lost).map_or(0, |last| last + 1);
        Received { to: came as u64 * 960, lost: (known - came) as u64 * 960 }
    }

    /// What its user has heard at `at`, in item samples: what was lost is concealed once something behind it plays.
    fn heard(&self, at: Instant, wire: &[(Instant, Vec<u8>)]) -> i64 {
        let mut heard = 0;
        for (frame, (sent, _)) in wire.iter().enumerate() {
            let plays = *sent + self.rtt / 2 + self.delay;
            if plays <= at && !self.lost[frame] {
                let played = ((at - plays).as_micros() as i64 * MS / 1000).min(960);
                heard = frame as i64 * 960 + played;
            }
        }
        heard
    }
}

/// What one run says, and what was true, in item samples.
struct Run {
    played_end: i64,
    heard_at: i64,
    /// At the device when all was played out, and when the user began to speak.
    really_played: i64,
    really_heard: i64,
    on_wire: i64,
    underruns: u32,
}

fn run(seed: u32, gives: Gives, told: Told) -> Run {
    let mut client = Client::new(seed, told);
    let mut bench = Bench::new(Config::default());
    bench.backend.delay = None;
    let reply = speech::speech(9000, seed + 100);
    bench.run_ms(200);
    let response = bench.conversation.create_response(bench.now).unwrap();
    let mut pieces = reply.chunks(9600);
    let speaks = match gives {
        Gives::AtOnce => 1500 + 20 * u64::from(client.random.below(40)),
        Gives::Late => 2700 + 20 * u64::from(client.random.below(30)),
        // The fourth burst comes 2100 ms after the first.
        Gives::LateAndCut => 2140,
    };
    let step = |bench: &mut Bench, client: &mut Client, ms: u64| {
        for _ in 0..ms / 20 {
            bench.run_ms(20);
            client.see(bench.edge.wire.len());
            bench.edge.client = client.view(bench.now, &bench.edge.wire);
        }
    };
    let mut give = |bench: &mut Bench, count: usize| {
        for piece in pieces.by_ref().take(count) {
            let audio = AgentAudio::Pcm(piece.to_vec());
            bench.conversation.handle_backend(bench.now, BackendOutput::Audio { response, audio });
            bench.drain();
        }
    };
    let begin = bench.elapsed_ms();
    if gives == Gives::AtOnce {
        give(&mut bench, 100);
    }
    while bench.elapsed_ms() < begin + speaks {
        if gives != Gives::AtOnce && (bench.elapsed_ms() - begin).is_multiple_of(700) {
            give(&mut bench, 1);
        }
        step(&mut bench, &mut client, 20);
    }
    bench.say(&speech::speech(900, seed + 200));
    // The first sample of it is recorded now; what arrives now was on the way for half a round trip and 3 ms.
    let spoke = bench.now - Duration::from_millis(3) - client.rtt / 2;
    step(&mut bench, &mut client, 700);
    let truncated = |event| match event {
        Event::Truncated { played_end, heard_at, .. } => Some((played_end, heard_at.unwrap())),
        _ => None,
    };
    let (played_end, heard_at) = bench.events().into_iter().find_map(truncated).expect("a cut");
    let balance = |event| if let Event::ReplyOver(balance) = event { Some(balance) } else { None };
    let balance = bench.events().into_iter().find_map(balance).unwrap();
    assert!(heard_at <= balance.sent && played_end <= balance.sent && balance.sent <= balance.generated);
    let told = |(_, output): &(u64, Output)| match output {
        Output::Backend(BackendInput::Played { samples, heard_at, .. }) => Some((*samples, *heard_at)),
        _ => None,
    };
    assert_eq!(bench.log.iter().find_map(told), Some((played_end, Some(heard_at))), "the backend is told the same");
    let wire = &bench.edge.wire;
    Run {
        played_end: played_end as i64,
        heard_at: heard_at as i64,
        really_played: client.heard(bench.now + Duration::from_secs(5), wire),
        really_heard: client.heard(spoke, wire),
        on_wire: wire.len() as i64 * 960,
        underruns: balance.underruns,
    }
}

/// Of 100, in ms.
fn percentile(errors: &mut [i64], of_100: usize) -> f64 {
    errors.sort_unstable();
    errors[(errors.len() - 1) * of_100 / 100] as f64 / 48.0
}

/// 95 of 100 errors of the cut are smaller than this; 94 of 100 of where the user was lie between these. In ms.
fn errors(told: Told) -> (f64, f64, f64) {
    let (mut cuts, mut hearings, mut underruns) = (Vec::new(), Vec::new(), 0);
    for seed in 1..=RUNS {
        let gives = [Gives::AtOnce, Gives::Late, Gives::LateAndCut][seed as usize % 3];
        let run = run(seed, gives, told);
        assert!(run.played_end <= run.on_wire && run.heard_at <= run.on_wire, "seed {seed}: above what was sent");
        println!(
            "seed {seed:2} {gives:?}: cut {:+.1} ms, heard {:+.1} ms, {} underruns",
            (run.played_end - run.really_played) as f64 / 48.0,
            (run.heard_at - run.really_heard) as f64 / 48.0,
            run.underruns
        );
        cuts.push(run.played_end - run.really_played);
        hearings.push(run.heard_at - run.really_heard);
        underruns += run.underruns;
    }
    assert!(underruns >= RUNS / 3, "the late backends ran the edge dry");
    let mut sizes: Vec<i64> = cuts.iter().map(|cut| cut.abs()).collect();
    let cut = percentile(&mut sizes, 95);
    let (least, most) = (percentile(&mut cuts, 0), percentile(&mut cuts, 100));
    println!("{told:?}: played_end within {cut:.1} ms (p95), {least:+.1} to {most:+.1}");
    let (low, middle, high) =
        (percentile(&mut hearings, 3), percentile(&mut hearings, 50), percentile(&mut hearings, 97));
    println!("{told:?}: heard_at {low:+.1} to {high:+.1} ms (middle 94 %), median {middle:+.1}");
    (cut, low, high)
}

#[test]
fn the_cut_and_where_the_user_was_are_what_a_client_really_played() {
    let (cut, low, high) = errors(Told::Feedback);
    assert!(cut <= 20.0, "{cut}");
    assert!(low >= -60.0 && high <= 20.0, "{low} to {high}");
}

#[test]
fn with_receiver_reports_alone_both_are_as_exact() {
    let (cut, low, high) = errors(Told::Reports);
    assert!(cut <= 20.0, "{cut}");
    assert!(low >= -60.0 && high <= 20.0, "{low} to {high}");
}
