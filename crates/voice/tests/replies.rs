//! Replies as backends really give them, and what is said to have been heard of them: cases A05, A07, A08, T01 to T03.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "a test may fail, and its signals fit"
)]

mod common;

use common::{Bench, speech};
use voice::opus::{Decoder, Encoder, EncoderConfig, MAX_PACKET_BYTES};
use voice::{
    AgentAudio, BackendInput, BackendOutput, Balance, Config, Event, Output, ResponseId, State, TurnConfig, WordTime,
};

const TEXT: &str = "Every word of this long answer is spoken aloud with care so that nobody ever loses what was really meant \
                    today";

fn manual() -> Config {
    Config { turn: TurnConfig { server_vad: None }, ..Config::default() }
}

/// A bench whose backend is the test.
fn bench(config: Config) -> Bench {
    let mut bench = Bench::new(config);
    bench.backend.delay = None;
    bench.run_ms(100);
    bench
}

fn begin(bench: &mut Bench) -> ResponseId {
    let response = bench.conversation.create_response(bench.now).unwrap();
    bench.drain();
    response
}

fn give(bench: &mut Bench, output: BackendOutput) {
    bench.conversation.handle_backend(bench.now, output);
    bench.drain();
}

fn pcm(response: ResponseId, pcm: &[i16]) -> BackendOutput {
    BackendOutput::Audio { response, audio: AgentAudio::Pcm(pcm.to_vec()) }
}

fn balances(bench: &Bench) -> Vec<Balance> {
    let balance = |event| if let Event::ReplyOver(balance) = event { Some(balance) } else { None };
    bench.events().into_iter().filter_map(balance).collect()
}

fn truncated(bench: &Bench) -> Vec<(u64, Option<String>)> {
    let cut = |event| match event {
        Event::Truncated { played_end, text, .. } => Some((played_end, text)),
        _ => None,
    };
    bench.events().into_iter().filter_map(cut).collect()
}

fn played(bench: &Bench) -> Vec<(ResponseId, u64)> {
    let played = |(_, output): &(u64, Output)| match output {
        Output::Backend(BackendInput::Played { response, samples, .. }) => Some((*response, *samples)),
        _ => None,
    };
    bench.log.iter().filter_map(played).collect()
}

/// [`TEXT`] spoken at so many letters a second, a short gap behind each word; where each word ends, in item samples.
fn spoken(letters_per_second: usize) -> (Vec<i16>, Vec<u64>) {
    let (mut sound, mut ends) = (Vec::new(), Vec::new());
    for (index, word) in TEXT.split_whitespace().enumerate() {
        // Words are not all said at the same rate.
        let samples = word.len() * 16_000 / letters_per_second * (85 + index % 4 * 10) / 100;
        sound.extend((0..samples).map(|n| if n % 80 < 40 { 6000 } else { -6000 }));
        ends.push(sound.len() as u64 * 3);
        sound.extend(vec![0; 16_000 / letters_per_second]);
    }
    (sound, ends)
}

/// The transcript of a reply cut after about `ms`, and how many of its words were really over by then.
fn cut_after(bench: &mut Bench, ends: &[u64], ms: u64) -> (usize, usize) {
    bench.log.clear();
    bench.run_ms(ms);
    bench.conversation.clear_output(bench.now);
    bench.drain();
    bench.run_ms(100);
    let (played_end, text) = truncated(bench).pop().unwrap();
    let text = text.unwrap();
    assert!(TEXT.starts_with(&text), "{text}");
    assert!(
        text.is_empty() || TEXT[text.len()..].is_empty() || TEXT[text.len()..].starts_with(' '),
        "half a word: {text}"
    );
    (text.split_whitespace().count(), ends.iter().filter(|end| **end <= played_end).count())
}

#[test]
fn t03_without_word_times_the_transcript_ends_near_the_last_word_played_and_never_beyond() {
    for (whole, former) in [(true, false), (false, true), (false, false)] {
        for ms in [0, 700, 1500, 2600, 4000, 5500] {
            let mut bench = bench(manual());
            let (sound, ends) = spoken(13);
            if former {
                let response = begin(&mut bench);
                give(&mut bench, pcm(response, &sound));
                give(&mut bench, BackendOutput::Text { response, delta: TEXT.to_owned(), words: Vec::new() });
                give(&mut bench, BackendOutput::ResponseDone { response });
                bench.run_ms(12_000);
            }
            let response = begin(&mut bench);
            // Text comes before the sound of it.
            give(&mut bench, BackendOutput::Text { response, delta: TEXT.to_owned(), words: Vec::new() });
            give(&mut bench, pcm(response, &sound));
            if whole {
                give(&mut bench, BackendOutput::ResponseDone { response });
            }
            let (said, really) = cut_after(&mut bench, &ends, ms);
            println!("whole: {whole}, former: {former}, {ms} ms: {said} of {really} words");
            assert!(said <= really, "{said} of {really} words after {ms} ms");
            let near = if whole { 1 } else { 1 + really / 4 };
            assert!(said + near >= really, "{said} of {really} words after {ms} ms");
        }
    }
}

#[test]
fn t03_with_word_times_the_transcript_ends_with_the_last_word_played() {
    let mut bench = bench(manual());
    let (sound, ends) = spoken(13);
    let response = begin(&mut bench);
    give(&mut bench, pcm(response, &sound));
    let mut to = 0;
    let words = TEXT.split_inclusive(' ').zip(&ends).map(|(word, end)| {
        let begin = to;
        to += word.len();
        WordTime { to: begin + word.trim_end().len(), end: *end }
    });
    let words = words.collect();
    give(&mut bench, BackendOutput::Text { response, delta: TEXT.to_owned(), words });
    let (said, really) = cut_after(&mut bench, &ends, 2600);
    assert!(really >= 4);
    assert_eq!(said, really);
}

#[test]
fn t01_speech_before_the_first_sound_cancels_and_truncates_nothing() {
    let mut bench = bench(Config::default());
    let response = begin(&mut bench);
    give(&mut bench, BackendOutput::ResponseStarted { response });
    give(&mut bench, BackendOutput::Text { response, delta: "Well".to_owned(), words: Vec::new() });
    bench.say(&speech::speech(1200, 5));
    bench.run_ms(900);
    assert_eq!(bench.backend.cancelled, [response]);
    assert_eq!(truncated(&bench), []);
    assert_eq!(played(&bench), [(response, 0)], "the context knows that nothing was heard");
    // What the backend had on its way is heard by nobody.
    give(&mut bench, pcm(response, &[1000; 4800]));
    bench.run_ms(300);
    assert!(bench.edge.wire.is_empty());
}

#[test]
fn t02_a_cut_is_clamped_to_what_the_backend_gave_of_the_item() {
    let mut bench = bench(manual());
    let response = begin(&mut bench);
    // 3,690 ms: the last frame on the wire reaches to 3,700.
    give(&mut bench, pcm(response, &speech::speech(3690, 6)));
    give(&mut bench, BackendOutput::ResponseDone { response });
    bench.edge.dead = true;
    bench.edge.lenient = true;
    bench.lenient = true;
    bench.run_ms(100);
    for sent in [1000, 2000, 3000, 3700] {
        let (utterance, limit) = (voice::Utterance(1), sent * 48 + 48_000);
        let report = voice::Playout::Report { utterance, sent: sent * 48, limit, client: None };
        bench.conversation.handle_playout(bench.now, report);
        bench.drain();
        bench.run_ms(100);
    }
    bench.conversation.clear_output(bench.now);
    let flushed = voice::Playout::Flushed {
        utterance: voice::Utterance(1),
        sent: 3760 * 48,
        received: voice::Received::default(),
    };
    bench.conversation.handle_playout(bench.now, flushed);
    bench.drain();
    assert_eq!(truncated(&bench), [(3690 * 48, None)]);
    assert_eq!(played(&bench), [(response, 3690 * 48)]);
}

/// A reply in bursts of 600 ms each 700 ms.
fn late_reply(bench: &mut Bench, bursts: usize) -> Balance {
    let response = begin(bench);
    for (index, burst) in speech::speech(600 * bursts, 51).chunks(9600).enumerate() {
        if index > 0 {
            bench.run_ms(700);
        }
        give(bench, pcm(response, burst));
    }
    give(bench, BackendOutput::ResponseDone { response });
    bench.run_ms(2500);
    *balances(bench).last().unwrap()
}

#[test]
fn a07_a_backend_late_in_bursts_is_waited_for_and_underruns_are_counted_per_reply() {
    let mut bench = bench(manual());
    let first = late_reply(&mut bench, 4);
    assert!(first.underruns >= 1 && first.preroll_us == 0, "{first:?}");
    let second = late_reply(&mut bench, 4);
    assert_eq!(second.underruns, 0, "{second:?}");
    assert!((280_000..=320_000).contains(&second.preroll_us), "{second:?}");
    let long = late_reply(&mut bench, 15);
    let next = late_reply(&mut bench, 15);
    println!("underruns of 9 s: {} before, {} after", long.underruns, next.underruns);
    assert_eq!(next.preroll_us, 400_000, "bounded");
    assert!(next.underruns <= 3, "{next:?}");
    for balance in [first, second, long, next] {
        assert_eq!((balance.sent, balance.played_end), (balance.generated, balance.generated));
    }
    // Of a backend that is faster than speech again, less is waited for each time.
    for _ in 0..12 {
        let response = begin(&mut bench);
        give(&mut bench, pcm(response, &speech::speech(600, 52)));
        give(&mut bench, BackendOutput::ResponseDone { response });
        bench.run_ms(1500);
    }
    assert!(balances(&bench).last().unwrap().preroll_us < 50_000);
}

#[test]
fn a08_of_an_interrupted_reply_nothing_that_comes_later_plays() {
    let mut bench = bench(Config::default());
    let response = begin(&mut bench);
    give(&mut bench, pcm(response, &speech::speech(3000, 7)));
    bench.run_ms(1000);
    bench.say(&speech::speech(900, 8));
    bench.run_ms(500);
    let frames = bench.edge.wire.len();
    assert_eq!(bench.backend.cancelled, [response]);
    for piece in speech::speech(300, 9).chunks(1600) {
        give(&mut bench, pcm(response, piece));
        bench.run_ms(100);
    }
    give(&mut bench, BackendOutput::Closed);
    bench.run_ms(3000);
    assert_eq!(bench.edge.wire.len(), frames);
}

#[test]
fn a08_a_backend_that_closes_without_an_end_is_heard_to_its_last_sample() {
    let mut bench = bench(manual());
    let response = begin(&mut bench);
    give(&mut bench, pcm(response, &speech::speech(1000, 10)[..15_500]));
    give(&mut bench, BackendOutput::Closed);
    bench.run_ms(1500);
    assert_eq!(bench.edge.wire.len(), 49);
    assert!(bench.edge.is_idle());
    let balance = balances(&bench)[0];
    assert_eq!((balance.generated, balance.played_end), (46_500, 46_500));
    assert!(bench.events().iter().any(|event| matches!(event, Event::ResponseDone { .. })));
    assert_eq!(bench.conversation.state(), State::Listening);
}

#[test]
fn a05_audio_under_a_wrong_label_is_told_and_played_as_labeled() {
    let mut bench = bench(manual());
    let response = begin(&mut bench);
    for _ in 0..50 {
        // 100 ms of 24 kHz under a label of 16 kHz.
        let data = vec![1; 4800];
        give(&mut bench, BackendOutput::Audio { response, audio: AgentAudio::Bytes { rate: 16_000, data } });
        bench.run_ms(100);
    }
    let told = |event: &&Event| matches!(event, Event::AudioMislabeled { declared: 16_000, likely: 24_000, .. });
    assert_eq!(bench.events().iter().filter(told).count(), 1);
    assert_eq!(bench.conversation.stats().outgoing.mislabeled, 1);
}

#[test]
fn a05_audio_of_any_rate_is_heard_at_its_pitch() {
    for rate in [8_000_u32, 24_000, 44_100, 48_000] {
        let mut bench = bench(manual());
        let response = begin(&mut bench);
        let turn = 2.0 * std::f64::consts::PI * 400.0 / f64::from(rate);
        let sine = |n: u32| (8000.0 * (turn * f64::from(n)).sin()) as i16;
        let data: Vec<u8> = (0..rate).flat_map(|n| sine(n).to_le_bytes()).collect();
        for piece in data.chunks(4063) {
            let audio = AgentAudio::Bytes { rate, data: piece.to_vec() };
            give(&mut bench, BackendOutput::Audio { response, audio });
        }
        give(&mut bench, BackendOutput::ResponseDone { response });
        bench.run_ms(1500);
        let heard = bench.edge.heard();
        assert_eq!(heard.len(), 16_000, "{rate}");
        let crossings = heard[1600..14_400].windows(2).filter(|pair| pair[0] < 0 && pair[1] >= 0).count();
        assert!((318..=322).contains(&crossings), "{rate}: {crossings} periods in 0.8 s");
    }
}

#[test]
fn packets_of_a_backend_pass_as_they_are() {
    let mut bench = bench(manual());
    let response = begin(&mut bench);
    let mut encoder = Encoder::new(EncoderConfig { rate: 24_000, ..EncoderConfig::default() }).unwrap();
    let sound = voice::babble::speech(24_000, 2000, 3);
    let mut packet = [0; MAX_PACKET_BYTES];
    let mut packets = Vec::new();
    for frame in sound.chunks(480) {
        let length = encoder.encode(frame, &mut packet).unwrap();
        packets.push(packet[..length].to_vec());
    }
    for some in packets.chunks(7) {
        give(&mut bench, BackendOutput::Audio { response, audio: AgentAudio::Opus(some.to_vec()) });
    }
    give(&mut bench, BackendOutput::ResponseDone { response });
    bench.run_ms(3000);
    let wire: Vec<Vec<u8>> = bench.edge.wire.iter().map(|(_, payload)| payload.clone()).collect();
    assert_eq!(wire, packets);
    assert_eq!(balances(&bench)[0].played_end, 96_000);
}

/// What an edge sends behind the last frame of a pause.
const SILENCE: [u8; 3] = [0xf8, 0xff, 0xfe];

/// The largest step between two samples of each 20 ms.
fn steps(packets: &[&[u8]]) -> Vec<i32> {
    let mut decoder = Decoder::new(48_000).unwrap();
    let (mut out, mut heard) = ([0; 5760], vec![0]);
    for packet in packets {
        let length = decoder.decode(packet, &mut out).unwrap();
        heard.extend_from_slice(&out[..length]);
    }
    let step =
        |part: &[i16]| part.windows(2).map(|pair| (i32::from(pair[1]) - i32::from(pair[0])).abs()).max().unwrap();
    heard.windows(961).step_by(960).map(step).collect()
}

/// What follows the last frame before the pause is not looked at: there a client's libopus fades into the silence, where the binding
/// used here has the concealment that `voice::opus` does without.
#[test]
fn a_reply_that_goes_on_after_a_pause_clicks_no_louder_than_its_speech() {
    let mut bench = bench(manual());
    let response = begin(&mut bench);
    give(&mut bench, pcm(response, &speech::speech(2000, 11)));
    give(&mut bench, BackendOutput::ResponseDone { response });
    bench.run_ms(2500);
    let frames: Vec<&[u8]> = bench.edge.wire.iter().map(|(_, payload)| &payload[..]).collect();
    let speech = *steps(&frames).iter().max().unwrap();
    let mut worst = 0;
    for at in (10..90).step_by(3) {
        let paused: Vec<&[u8]> = [&frames[..at], &[&SILENCE[..]; 3], &frames[at..]].concat();
        // From the second frame of silence on.
        worst = worst.max(*steps(&paused)[at + 1..at + 7].iter().max().unwrap());
    }
    println!("largest step: {worst} about the end of a pause, {speech} in the speech");
    assert!(worst <= speech * 11 / 10, "{worst} of {speech}");
}
