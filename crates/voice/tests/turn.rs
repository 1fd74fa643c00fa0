//! A turn of the user's: heard, ended by silence, answered.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use common::{Bench, speech};
use voice::{BackendInput, Config, Event, Output, ServerVad, State, TurnConfig};

fn started(output: &Output) -> bool {
    matches!(output, Output::Event(Event::SpeechStarted { .. }))
}

fn stopped(output: &Output) -> bool {
    matches!(output, Output::Event(Event::SpeechStopped { .. }))
}

fn failed(output: &Output) -> bool {
    matches!(output, Output::Event(Event::ResponseFailed { .. }))
}

fn with_vad(change: impl FnOnce(&mut ServerVad)) -> Config {
    let mut vad = ServerVad::default();
    change(&mut vad);
    Config { turn: TurnConfig { server_vad: Some(vad) }, ..Config::default() }
}

#[test]
fn a_sentence_is_said_back() {
    let mut bench = Bench::new(Config::default());
    let sentence = speech::speech(1400, 1);
    bench.say(&speech::silence(600));
    bench.say(&sentence);
    bench.run_ms(5000);
    assert_eq!(bench.backend.turns.len(), 1);
    let heard = bench.edge.heard();
    let correlation = speech::correlation(&sentence[4800..12_800], &heard[4800..], 2400);
    println!("correlation {correlation:.2}");
    assert!(correlation > 0.6, "{correlation}");
    let names: Vec<String> = bench
        .events()
        .iter()
        .map(|event| format!("{event:?}").split(' ').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        names,
        [
            "SpeechStarted",
            "SpeechStopped",
            "Committed",
            "ResponseCreated",
            "ResponseAudioStarted",
            "ResponseDone",
            "PlayoutStarted",
            "PlayoutStopped",
            "ReplyOver(Balance"
        ]
    );
    assert_eq!(bench.conversation.state(), State::Listening);
}

#[test]
fn the_voiced_span_is_the_sentence() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(1400, 2));
    bench.run_ms(3000);
    let (from, to) = bench.backend.spans[0];
    let (from, to) = (from as f64 / 48.0, to as f64 / 48.0);
    println!("{from} to {to} ms");
    assert!((from - 600.0).abs() < 40.0 && (to - 2000.0).abs() < 60.0, "{from} to {to} ms");
}

#[test]
fn the_turn_ends_after_the_silence_duration() {
    for silence_duration_ms in [200, 500, 900] {
        let mut bench = Bench::new(with_vad(|vad| vad.silence_duration_ms = silence_duration_ms));
        bench.say(&speech::silence(600));
        bench.say(&speech::speech(1400, 3));
        bench.run_ms(4000);
        let end = bench.time_of(stopped).unwrap();
        let last = bench.backend.spans[0].1 / 48;
        // 16 ms frames in 20 ms packets; the bench sends a packet when its first sample is said.
        let silence = end + 20 - last;
        assert!((u64::from(silence_duration_ms)..u64::from(silence_duration_ms) + 40).contains(&silence), "{silence}");
    }
}

#[test]
fn a_pause_within_a_sentence_does_not_end_the_turn() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(900, 4));
    bench.say(&speech::silence(350));
    bench.say(&speech::speech(900, 5));
    bench.run_ms(4500);
    assert_eq!(bench.count(started), 1);
    assert_eq!(bench.backend.turns.len(), 1);
    assert!(bench.backend.turns[0].len() > 16 * 2100, "{}", bench.backend.turns[0].len());
}

#[test]
fn a_click_in_the_pause_does_not_put_off_the_answer() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(900, 4));
    bench.say(&speech::silence(300));
    bench.say(&speech::noise(4, 12_000, 7));
    bench.run_ms(4000);
    let end = bench.time_of(stopped).unwrap();
    let last = bench.backend.spans[0].1 / 48;
    assert!(last < 1600 && end < 1500 + 600 + 40, "last voiced {last}, end {end}");
}

#[test]
fn audio_reaches_the_backend_from_300_ms_before_the_onset() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::silence(900));
    bench.say(&speech::speech(1000, 6));
    bench.run_ms(1500);
    // The bench checks that there is no gap.
    assert!(bench.backend.begin <= (900 - 270) * 48, "{}", bench.backend.begin / 48);
    assert!(bench.backend.end >= 1400 * 48);
}

#[test]
fn speech_from_the_first_packet_on_is_one_turn() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::speech(1500, 8));
    bench.run_ms(4500);
    assert_eq!(bench.backend.turns.len(), 1);
    assert!(bench.backend.spans[0].0 < 60 * 48, "{}", bench.backend.spans[0].0);
}

#[test]
fn the_parts_of_the_delay_sum_to_it() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(1400, 9));
    bench.run_ms(5000);
    let [timing] = bench.timings()[..] else { panic!("one timing, not {:?}", bench.timings()) };
    println!("{timing:?}");
    let parts = timing.silence_us
        + timing.uplink_us
        + timing.repair_us
        + timing.backend_us
        + timing.encode_us
        + timing.playout_us;
    assert_eq!(parts, timing.total_us);
    assert_eq!((timing.uplink_us, timing.backend_us, timing.playout_us), (3000, 5000, 20_000));
    assert!((470_000..520_000).contains(&timing.silence_us));
}

#[test]
fn a_user_who_never_stops_is_answered() {
    let mut bench = Bench::new(Config { max_turn_ms: 4000, ..Config::default() });
    bench.backend.says = Some(speech::speech(800, 11));
    bench.say(&speech::speech(20_000, 10));
    bench.run_ms(6000);
    for (at, output) in &bench.log {
        println!("{at:5} {output:?}");
    }
    let end = bench.time_of(stopped).unwrap();
    assert!((3900..4300).contains(&end), "{end}");
    assert_eq!(bench.count(|output| matches!(output, Output::Event(Event::PlayoutStopped { .. }))), 1);
    // And heard again when the reply is over.
    assert_eq!(bench.count(started), 2);
    bench.run_ms(20_000);
    assert_eq!(bench.conversation.state(), State::Listening);
}

#[test]
fn a_microphone_that_falls_silent_without_a_packet_ends_the_turn() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::speech(3000, 12));
    bench.run_ms(1000);
    assert_eq!(bench.conversation.state(), State::UserSpeaking);
    bench.muted = true;
    bench.run_ms(1500);
    let end = bench.time_of(stopped).unwrap();
    assert!((1780..1900).contains(&end), "{end}");
    assert_eq!(bench.backend.turns.len(), 1);
}

#[test]
fn a_stall_of_the_network_does_not_end_the_turn() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::speech(3000, 13));
    bench.run_ms(1000);
    bench.muted = true;
    bench.run_ms(700);
    bench.muted = false;
    // What was under way comes in a burst.
    for _ in 0..35 {
        bench.packet();
    }
    bench.run_ms(600);
    assert_eq!(bench.count(stopped), 0);
    assert_eq!(bench.conversation.state(), State::UserSpeaking);
}

#[test]
fn a_backend_without_an_answer_is_given_up() {
    let mut bench = Bench::new(Config { response_timeout_ms: 2000, ..Config::default() });
    bench.backend.delay = None;
    bench.say(&speech::speech(1000, 14));
    bench.run_ms(2000);
    assert_eq!(bench.conversation.state(), State::Thinking);
    bench.run_ms(2500);
    assert_eq!(bench.count(failed), 1);
    assert_eq!(bench.backend.cancelled.len(), 1);
    assert_eq!(bench.conversation.state(), State::Listening);
}

#[test]
fn an_empty_answer_leaves_the_agent_listening() {
    let mut bench = Bench::new(Config::default());
    bench.backend.says = Some(Vec::new());
    bench.say(&speech::speech(1000, 15));
    bench.run_ms(2500);
    assert_eq!(bench.conversation.state(), State::Listening);
    assert_eq!(bench.count(|output| matches!(output, Output::UtteranceStart { .. })), 0);
    assert!(bench.events().iter().any(|event| matches!(event, Event::ResponseDone { generated: 0, .. })));
}

#[test]
fn without_create_response_a_turn_is_committed_alone() {
    let mut bench = Bench::new(with_vad(|vad| vad.create_response = false));
    bench.say(&speech::speech(1000, 16));
    bench.run_ms(2500);
    assert_eq!(bench.backend.turns.len(), 1);
    assert_eq!(bench.count(|output| matches!(output, Output::Backend(BackendInput::CreateResponse { .. }))), 0);
}

#[test]
fn noise_is_no_turn() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::noise(5000, 1500, 17));
    bench.run_ms(5000);
    assert_eq!(bench.count(started), 0);
}

#[test]
fn every_rate_of_the_backend_gives_the_same_turn() {
    for rate in [24_000_u32, 48_000] {
        let mut bench = Bench::new(Config { backend_rate: rate, ..Config::default() });
        bench.backend.rate = u64::from(rate);
        let sentence = speech::speech(1400, 1);
        bench.say(&speech::silence(600));
        bench.say(&sentence);
        bench.run_ms(5000);
        assert_eq!(bench.backend.turns.len(), 1);
        let correlation = speech::correlation(&sentence[4800..12_800], &bench.edge.heard()[4800..], 2400);
        println!("{rate}: correlation {correlation:.2}");
        assert!(correlation > 0.6, "{rate}: {correlation}");
    }
}

#[test]
fn a_soft_first_sound_belongs_to_the_onset() {
    let mut bench = Bench::new(Config::default());
    bench.say(&speech::silence(900));
    let mut word = speech::speech(1000, 6);
    word[..80 * 16].iter_mut().for_each(|sample| *sample /= 12);
    bench.say(&word);
    bench.run_ms(3500);
    let from = bench.backend.spans[0].0 / 48;
    assert!((860..=940).contains(&from), "the onset is at {from} ms, the sound began at 900");
}

/// What is said in a room that is never quiet.
fn over_noise(pcm: &[i16], amplitude: i16, seed: u32) -> Vec<i16> {
    let noise = speech::noise(pcm.len() / 16, amplitude, seed);
    pcm.iter().zip(noise).map(|(sample, noise)| sample.saturating_add(noise)).collect()
}

#[test]
fn steady_noise_is_no_part_of_an_onset() {
    for amplitude in [30, 100, 300, 600] {
        let mut bench = Bench::new(Config::default());
        let said = [speech::silence(1500), speech::speech(1000, 6), speech::silence(1500)].concat();
        bench.say(&over_noise(&said, amplitude, 18));
        bench.run_ms(3900);
        let from = bench.backend.spans[0].0 / 48;
        println!("noise of {amplitude}: onset at {from} ms");
        assert!((1440..=1560).contains(&from), "noise of {amplitude}: {from}");
    }
}

#[test]
fn noise_that_comes_out_of_dtx_is_a_part_of_an_onset_for_160_ms_at_most() {
    let mut bench = Bench::new(Config::default());
    bench.say(&over_noise(&speech::silence(500), 300, 19));
    bench.run_ms(500);
    // 600 ms without a packet; then 400 ms of noise, and the words.
    bench.muted = true;
    bench.run_ms(600);
    bench.muted = false;
    bench.timestamp = bench.timestamp.wrapping_add(48 * 600);
    let said = [speech::silence(400), speech::speech(1000, 6), speech::silence(1500)].concat();
    bench.say(&over_noise(&said, 300, 20));
    bench.run_ms(2800);
    let from = bench.backend.spans[0].0 / 48;
    println!("onset at {from} ms");
    assert!((1500 - 170..=1560).contains(&from), "{from}");
    assert_eq!(bench.backend.turns.len(), 1);
}
