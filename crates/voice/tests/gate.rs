//! One gate for everything that would interrupt a reply.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use std::time::Instant;

use common::{Bench, speech};
use voice::{
    BackendOutput, Config, Conversation, DecisionKind, InterruptSource, InterruptionConfig, InterruptionProfile,
    Output, Playout, Profile, State, TurnVerdict, Utterance,
};

fn pause(output: &Output) -> bool {
    matches!(output, Output::Pause)
}

fn resume(output: &Output) -> bool {
    matches!(output, Output::Resume { .. })
}

fn flush(output: &Output) -> bool {
    matches!(output, Output::Flush { .. })
}

fn with(change: impl FnOnce(&mut InterruptionConfig)) -> Config {
    let mut interruption = InterruptionConfig::default();
    change(&mut interruption);
    Config { interruption, ..Config::default() }
}

fn tell(bench: &mut Bench, output: BackendOutput) {
    bench.conversation.handle_backend(bench.now, output);
    bench.drain();
}

fn words(text: &str, is_final: bool) -> BackendOutput {
    BackendOutput::UserTranscript { turn: None, text: text.to_owned(), is_final }
}

#[test]
fn t06_a_threshold_of_ten_seconds_holds_for_every_source() {
    let mut bench = Bench::in_a_reply(with(|config| config.min_duration_ms = 10_000), 6000);
    bench.say(&speech::speech(1000, 41));
    bench.run_ms(700);
    tell(&mut bench, words("stop it please now", false));
    tell(&mut bench, BackendOutput::TurnVerdict(TurnVerdict::Interruption { probability: 1.0 }));
    bench.run_ms(700);
    tell(&mut bench, words("stop it please now", true));
    bench.run_ms(6000);
    assert_eq!((bench.count(pause), bench.count(flush)), (0, 0));
    assert_eq!(bench.edge.wire.len(), 300);
    let refused = bench.decisions().into_iter().filter(|(_, decision)| decision.kind == DecisionKind::Refuse);
    let sources: Vec<InterruptSource> = refused.map(|(_, decision)| decision.inputs.source).collect();
    assert!(sources.contains(&InterruptSource::Words) && sources.contains(&InterruptSource::Verdict), "{sources:?}");
}

#[test]
fn t07_words_are_counted_for_each_utterance_alone() {
    for is_final in [true, false] {
        let mut bench = Bench::in_a_reply(with(|config| config.min_words = 3), 20_000);
        for seed in 0..3 {
            bench.say(&speech::speech(350, 50 + seed));
            bench.run_ms(600);
            tell(&mut bench, words("ok", is_final));
            bench.run_ms(4400);
        }
        assert_eq!(bench.count(flush), 0, "final: {is_final}");
        assert_eq!(bench.conversation.state(), State::AgentSpeaking);
    }
}

#[test]
fn three_words_of_one_utterance_interrupt_and_may_come_late() {
    let mut bench = Bench::in_a_reply(with(|config| config.min_words = 3), 20_000);
    let onset = bench.elapsed_ms();
    bench.say(&speech::speech(600, 54));
    bench.run_ms(1300);
    assert_eq!((bench.count(pause), bench.count(flush)), (1, 0));
    assert_eq!(bench.conversation.state(), State::AgentSpeaking);
    tell(&mut bench, words("stop it now", true));
    assert_eq!(bench.count(flush), 1);
    let (_, decision) = *bench.decisions().last().unwrap();
    assert_eq!((decision.kind, decision.inputs.source), (DecisionKind::Interrupt, InterruptSource::Words));
    assert_eq!((decision.inputs.words, decision.inputs.profile), (3, Some(Profile::Speaking)));
    bench.run_ms(3000);
    assert_eq!(bench.backend.turns.len(), 2);
    assert!(bench.backend.begin / 48 <= onset, "the turn has all of the utterance: {}", bench.backend.begin / 48);
}

#[test]
fn two_utterances_close_together_are_not_added_up() {
    let mut bench = Bench::in_a_reply(with(|config| config.min_words = 2), 20_000);
    for seed in 0..3 {
        bench.say(&speech::speech(350, 50 + seed));
        bench.run_ms(1000);
        tell(&mut bench, words("yeah", true));
        bench.run_ms(400);
    }
    assert_eq!(bench.count(flush), 0);
}

#[test]
fn two_transcripts_of_one_utterance_are_added_up() {
    let mut bench = Bench::in_a_reply(with(|config| config.min_words = 3), 20_000);
    bench.say(&speech::speech(1200, 54));
    bench.run_ms(600);
    tell(&mut bench, words("wait", true));
    bench.run_ms(400);
    assert_eq!(bench.count(flush), 0);
    tell(&mut bench, words("stop it", true));
    assert_eq!(bench.count(flush), 1);
}

#[test]
fn late_words_belong_to_what_was_said_before_a_cough() {
    let mut bench = Bench::in_a_reply(with(|config| config.min_words = 2), 20_000);
    let onset = bench.elapsed_ms();
    bench.say(&speech::speech(600, 54));
    bench.run_ms(1300);
    bench.say(&speech::speech(100, 3));
    bench.run_ms(120);
    assert_eq!(bench.conversation.state(), State::Interrupting, "it may be speech");
    tell(&mut bench, words("stop that", true));
    assert_eq!(bench.count(flush), 1);
    bench.run_ms(3000);
    assert!(bench.backend.begin / 48 <= onset, "the turn has all of the utterance: {}", bench.backend.begin / 48);
}

#[test]
fn words_of_the_question_that_come_while_the_answer_plays_interrupt_nothing() {
    let mut bench = Bench::in_a_reply(Config::default(), 3000);
    tell(&mut bench, words("what is the weather like today", true));
    bench.run_ms(4000);
    assert_eq!((bench.count(pause), bench.count(flush)), (0, 0));
}

#[test]
fn a_verdict_of_no_resumes_at_once_and_one_of_yes_needs_the_speech_all_the_same() {
    let mut bench = Bench::in_a_reply(Config::default(), 6000);
    bench.say(&speech::speech(1500, 55));
    bench.run_ms(120);
    tell(&mut bench, BackendOutput::TurnVerdict(TurnVerdict::Interruption { probability: 0.9 }));
    assert_eq!(bench.count(flush), 0);
    tell(&mut bench, BackendOutput::TurnVerdict(TurnVerdict::Interruption { probability: 0.1 }));
    assert_eq!(bench.count(|output| matches!(output, Output::Resume { .. })), 1);
    bench.run_ms(6000);
    assert_eq!(bench.count(flush), 0, "the rest of the same sound has no onset");
    assert_eq!(bench.edge.wire.len(), 300);
}

#[test]
fn t04_a_hum_pauses_and_the_reply_resumes_at_the_first_sample_not_sent() {
    let mut bench = Bench::in_a_reply(Config::default(), 4000);
    let onset = bench.elapsed_ms();
    bench.say(&speech::hum(250, 140.0));
    bench.run_ms(6000);
    assert_eq!((bench.count(pause), bench.count(flush)), (1, 0));
    let paused = bench.time_of(pause).unwrap() - onset;
    let resumed = bench.time_of(|output| matches!(output, Output::Resume { .. })).unwrap() - onset;
    println!("paused after {paused} ms, resumed after {resumed} ms");
    assert!(paused <= 80, "{paused}");
    assert!(resumed <= 250 + 250, "within 250 ms of its end: {resumed}");
    // Every frame once: nothing lost, nothing twice.
    assert_eq!(bench.edge.wire.len(), 200);
    assert_eq!(bench.conversation.state(), State::Listening);
}

#[test]
fn a_listener_who_hums_along_pauses_the_reply_once_a_minute_and_never_loses_it() {
    let mut bench = Bench::in_a_reply(Config::default(), 40_000);
    for round in 0..12_u32 {
        match round % 3 {
            0 => {
                // "mm-hm"
                bench.say(&speech::hum(220, 120.0 + 10.0 * round as f32));
                bench.say(&speech::silence(60));
                bench.say(&speech::hum(260, 150.0));
            }
            1 => bench.say(&speech::click(round)),
            _ => bench.say(&speech::cough(round)),
        }
        bench.run_ms(3000);
    }
    println!("{} pauses", bench.count(pause));
    assert_eq!(bench.count(flush), 0);
    assert!(bench.count(pause) <= 1, "{}", bench.count(pause));
    bench.run_ms(8000);
    assert_eq!(bench.edge.wire.len(), 2000);
}

#[test]
fn a_word_after_a_hum_is_an_interruption_still() {
    let mut bench = Bench::in_a_reply(Config::default(), 20_000);
    bench.say(&speech::hum(250, 140.0));
    bench.run_ms(3000);
    let onset = bench.elapsed_ms();
    bench.log.clear();
    bench.say(&speech::speech(900, 56));
    bench.run_ms(1200);
    let cut = bench.time_of(flush).unwrap() - onset;
    println!("cut after {cut} ms");
    assert_eq!(bench.count(pause), 0, "less than a cut holds nothing any more");
    assert!(cut <= 340, "{cut}");
}

#[test]
fn a_greeting_that_may_not_be_interrupted_is_not() {
    let closed = InterruptionProfile { interruptible: false, ..InterruptionProfile::default() };
    let mut bench = Bench::new(with(|config| config.greeting = closed));
    bench.backend.says = Some(speech::speech(3000, 21));
    bench.conversation.create_response(bench.now);
    bench.run_ms(500);
    assert_eq!(bench.conversation.state(), State::AgentSpeaking);
    bench.say(&speech::speech(1000, 57));
    bench.run_ms(3500);
    assert_eq!((bench.count(pause), bench.count(flush)), (0, 0));
    bench.run_ms(1500);
    // What was said over it is answered after it, by a reply that may be interrupted.
    assert_eq!(bench.backend.turns.len(), 1);
    bench.say(&speech::speech(1000, 58));
    bench.run_ms(1500);
    assert_eq!(bench.count(flush), 1);
}

#[test]
fn the_thinking_profile_holds_until_the_reply_is_heard() {
    let rules = InterruptionProfile { min_duration_ms: Some(2000), ..InterruptionProfile::default() };
    let mut bench = Bench::new(with(|config| config.thinking = rules));
    bench.backend.delay = Some(std::time::Duration::from_secs(2));
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(1000, 22));
    bench.run_ms(2400);
    bench.say(&speech::speech(1000, 35));
    bench.run_ms(3500);
    assert!(bench.backend.cancelled.is_empty());
    assert_eq!(bench.count(|output| matches!(output, Output::UtteranceStart { .. })), 1);
}

#[test]
fn a_clients_cancel_passes_whatever_the_rules_and_is_recorded() {
    let mut bench = Bench::in_a_reply(with(|config| config.enabled = false), 6000);
    bench.backend.delay = None;
    bench.say(&speech::speech(400, 59));
    bench.run_ms(800);
    assert_eq!((bench.count(pause), bench.count(flush)), (0, 0));
    bench.conversation.clear_output(bench.now);
    bench.drain();
    assert_eq!(bench.count(flush), 1);
    let decided = bench.decisions();
    let cut = decided.iter().find(|(_, decision)| decision.kind == DecisionKind::ClientCut).unwrap().1;
    assert_eq!((cut.inputs.source, cut.inputs.profile), (InterruptSource::Client, Some(Profile::Speaking)));
}

#[test]
fn every_decision_of_an_interrupted_reply_is_told_with_its_inputs() {
    let mut bench = Bench::in_a_reply(Config::default(), 6000);
    bench.backend.says = Some(speech::speech(300, 60));
    bench.say(&speech::speech(1000, 61));
    bench.run_ms(3000);
    let told: Vec<(DecisionKind, State)> =
        bench.decisions().iter().map(|(_, decision)| (decision.kind, decision.state_before)).collect();
    assert_eq!(
        told,
        [
            (DecisionKind::Onset, State::Interrupting),
            (DecisionKind::Pause, State::Interrupting),
            (DecisionKind::Interrupt, State::Interrupting),
            (DecisionKind::TurnEnd, State::Deciding),
        ]
    );
    let interrupt = bench.decisions()[2].1.inputs;
    assert_eq!((interrupt.source, interrupt.profile), (InterruptSource::Vad, Some(Profile::Speaking)));
    assert!(interrupt.voiced_ms >= 250 && interrupt.probability >= 0.5, "{interrupt:?}");
    let end = bench.decisions()[3].1.inputs;
    assert!((480..=560).contains(&end.silence_ms) && end.voiced_ms > 900, "{end:?}");
}

/// The edge pauses by itself and says so.
fn reflex(bench: &mut Bench) {
    let reflex = Playout::Reflex { utterance: Utterance(1), sent: bench.edge.wire.len() as u64 * 960 };
    bench.conversation.handle_playout(bench.now, reflex);
    bench.drain();
}

/// What the edge was told of its reflex: enabled, muted.
fn settings(bench: &Bench) -> Vec<(bool, bool)> {
    let settings = bench.log.iter().filter_map(|(_, output)| match output {
        Output::Reflex { enabled, muted } => Some((*enabled, *muted)),
        _ => None,
    });
    settings.collect()
}

#[test]
fn the_edge_is_told_at_once_whether_it_may_hold_a_reply_by_itself() {
    for reflex in [false, true] {
        let mut conversation = Conversation::new(Instant::now(), with(|config| config.reflex = reflex));
        assert_eq!(conversation.poll_output(), Some(Output::Reflex { enabled: reflex, muted: false }));
        assert_eq!(conversation.poll_output(), None);
    }
}

#[test]
fn after_a_pause_for_nothing_the_reflex_is_muted_for_a_minute() {
    let mut bench = Bench::in_a_reply(with(|config| config.reflex = true), 50_000);
    reflex(&mut bench);
    assert_eq!(bench.conversation.state(), State::Interrupting);
    bench.run_ms(400);
    assert_eq!((bench.count(pause), bench.count(resume), bench.count(flush)), (1, 1, 0));
    assert_eq!(settings(&bench), [(true, true)]);
    bench.run_ms(59_000);
    assert_eq!(settings(&bench), [(true, true)]);
    bench.run_ms(1100);
    assert_eq!(settings(&bench), [(true, true), (true, false)]);
}

#[test]
fn a_reflex_that_was_on_its_way_when_it_was_muted_is_taken_back_at_once() {
    let mut bench = Bench::in_a_reply(with(|config| config.reflex = true), 6000);
    reflex(&mut bench);
    bench.run_ms(400);
    let reflex = Playout::Reflex { utterance: Utterance(1), sent: 9600 };
    bench.conversation.handle_playout(bench.now, reflex);
    let out: Vec<Output> = std::iter::from_fn(|| bench.conversation.poll_output()).collect();
    assert!(out.contains(&Output::Resume { from: None }) && !out.contains(&Output::Pause), "{out:?}");
}

#[test]
fn a_reflex_with_a_voice_is_cut() {
    let mut bench = Bench::in_a_reply(Config::default(), 6000);
    reflex(&mut bench);
    bench.say(&speech::speech(1000, 62));
    bench.run_ms(500);
    assert_eq!((bench.count(pause), bench.count(flush)), (1, 1));
    let first = bench.decisions()[0].1;
    assert_eq!((first.kind, first.inputs.source), (DecisionKind::Onset, InterruptSource::Reflex));
}

#[test]
fn a_reflex_over_a_reply_that_may_not_be_interrupted_is_taken_back_at_once() {
    let mut bench = Bench::in_a_reply(with(|config| config.enabled = false), 6000);
    bench.lenient = true;
    let reflex = Playout::Reflex { utterance: Utterance(1), sent: 9600 };
    bench.conversation.handle_playout(bench.now, reflex);
    let out: Vec<Output> = std::iter::from_fn(|| bench.conversation.poll_output()).collect();
    assert!(out.contains(&Output::Resume { from: None }) && !out.contains(&Output::Pause), "{out:?}");
}

#[test]
fn a_backchannel_plays_while_the_user_speaks_and_at_no_other_time() {
    let clip = || BackendOutput::Backchannel { frames: vec![vec![0xf8, 0xff, 0xfe]; 300] };
    let mut bench = Bench::new(Config::default());
    bench.backend.says = Some(speech::speech(2000, 21));
    tell(&mut bench, clip());
    bench.say(&speech::speech(2000, 63));
    bench.run_ms(1000);
    tell(&mut bench, clip());
    bench.run_ms(2000);
    assert_eq!(bench.conversation.state(), State::AgentSpeaking);
    tell(&mut bench, clip());
    let clips: Vec<usize> = bench
        .log
        .iter()
        .filter_map(|(_, output)| if let Output::Clip { frames } = output { Some(frames.len()) } else { None })
        .collect();
    assert_eq!(clips, [100]);
    assert_eq!(bench.conversation.stats().clips_dropped, 2);
    assert_eq!(bench.backend.turns.len(), 1);
}

#[test]
fn sounds_of_a_listener_lose_no_reply_in_soft_noise_either() {
    // 20 dB below the hum, and 26.
    for amplitude in [325, 650] {
        let mut bench = Bench::in_a_reply(Config::default(), 12_000);
        for round in 0..6_u32 {
            let sound = match round % 3 {
                0 => speech::hum(400, 130.0),
                1 => speech::click(round),
                _ => speech::cough(round),
            };
            let noise = speech::noise(1500, amplitude, round + 1);
            let at = |index: usize| index.checked_sub(8000).and_then(|at| sound.get(at)).copied().unwrap_or(0);
            let mixed: Vec<i16> =
                noise.iter().enumerate().map(|(index, noise)| noise.saturating_add(at(index))).collect();
            bench.say(&mixed);
            bench.run_ms(1500);
        }
        println!("noise of {amplitude}: {} pauses", bench.count(pause));
        assert_eq!(bench.count(flush), 0, "noise of {amplitude}");
        assert!(bench.count(pause) <= 1, "noise of {amplitude}: {}", bench.count(pause));
    }
}
