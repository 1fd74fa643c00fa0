//! The end of a turn by eagerness and verdicts, the silences that something follows from, and cases of turn taking.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Bench, speech};
use voice::{
    BackendInput, BackendOutput, Config, DecisionKind, Eagerness, Event, Judge, Output, ServerVad, State, TurnConfig,
    TurnVerdict,
};

fn stopped(output: &Output) -> bool {
    matches!(output, Output::Event(Event::SpeechStopped { .. }))
}

fn create(output: &Output) -> bool {
    matches!(output, Output::Backend(BackendInput::CreateResponse { .. }))
}

fn with_vad(change: impl FnOnce(&mut ServerVad)) -> Config {
    let mut vad = ServerVad::default();
    change(&mut vad);
    Config { turn: TurnConfig { server_vad: Some(vad) }, ..Config::default() }
}

fn semantic(eagerness: Eagerness) -> Config {
    with_vad(|vad| vad.eagerness = Some(eagerness))
}

fn complete(bench: &mut Bench, probability: f32) {
    let verdict = BackendOutput::TurnVerdict(TurnVerdict::Complete { probability });
    bench.conversation.handle_backend(bench.now, verdict);
    bench.drain();
}

/// Silence before the end of a turn whose last sample is said at 2000 ms; a verdict comes in its first 250 ms.
fn silence(config: Config, verdict: Option<f32>) -> u64 {
    let mut bench = Bench::new(config);
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(1400, 3));
    bench.run_ms(2150);
    if let Some(probability) = verdict {
        complete(&mut bench, probability);
    }
    bench.run_ms(9000);
    assert_eq!(bench.count(stopped), 1);
    bench.time_of(stopped).unwrap() + 20 - bench.backend.spans[0].1 / 48
}

#[test]
fn eagerness_is_how_long_silence_is_waited_for() {
    for (eagerness, wait) in
        [(Eagerness::Low, 1000), (Eagerness::Medium, 600), (Eagerness::Auto, 600), (Eagerness::High, 350)]
    {
        let silence = silence(semantic(eagerness), None);
        assert!((wait..wait + 40).contains(&silence), "{eagerness:?}: {silence}");
    }
}

#[test]
fn a_verdict_of_complete_ends_the_turn_soon_and_one_of_incomplete_waits_up_to_the_bound() {
    let soon = silence(semantic(Eagerness::Medium), Some(1.0));
    assert!((250..300).contains(&soon), "{soon}");
    for (eagerness, most) in [(Eagerness::High, 2000), (Eagerness::Medium, 4000), (Eagerness::Low, 8000)] {
        let late = silence(semantic(eagerness), Some(0.0));
        assert!((most..most + 40).contains(&late), "{eagerness:?}: {late}");
    }
}

#[test]
fn server_vad_waits_its_silence_whatever_a_verdict_says() {
    for verdict in [0.0, 1.0] {
        let silence = silence(Config::default(), Some(verdict));
        assert!((500..540).contains(&silence), "{silence}");
    }
}

#[test]
fn a_verdict_of_incomplete_holds_for_its_pause_alone() {
    let mut bench = Bench::new(semantic(Eagerness::Medium));
    bench.say(&speech::speech(900, 4));
    bench.run_ms(1200);
    complete(&mut bench, 0.0);
    bench.run_ms(1200);
    assert_eq!(bench.conversation.state(), State::Deciding);
    bench.say(&speech::speech(900, 5));
    bench.run_ms(4000);
    assert_eq!((bench.backend.turns.len(), bench.count(stopped)), (1, 1));
    // The pause of 1500 ms was the user's own: the wait after it is longer than the usual 600.
    let silence = bench.time_of(stopped).unwrap() - bench.backend.spans[0].1 / 48;
    assert!((1700..2040).contains(&silence), "{silence}");
}

/// A gap inside a word is judged as over; the words that follow take that back.
#[test]
fn a_verdict_inside_the_hangover_does_not_decide_a_later_pause() {
    let mut bench = Bench::new(semantic(Eagerness::Medium));
    bench.say(&speech::speech(900, 4));
    bench.run_ms(1020);
    complete(&mut bench, 1.0);
    bench.say(&speech::speech(1200, 5));
    bench.run_ms(5000);
    let silence = bench.time_of(stopped).unwrap() + 20 - bench.backend.spans[0].1 / 48;
    assert_eq!(bench.count(stopped), 1);
    assert!((600..700).contains(&silence), "{silence}");
}

/// A judge that is sure that each turn is over.
#[derive(Debug, Default)]
struct Fake {
    seen: Arc<Mutex<Seen>>,
    /// Looks in vain before there is an answer.
    takes: usize,
    left: Option<usize>,
}

#[derive(Debug, Default)]
struct Seen {
    samples: usize,
    asked: usize,
    resumed: usize,
}

impl Judge for Fake {
    fn hear(&mut self, pcm: &[i16], rate: u32) {
        assert_eq!(rate, 16_000);
        self.seen.lock().unwrap().samples += pcm.len();
    }

    fn ask(&mut self) {
        self.seen.lock().unwrap().asked += 1;
        self.left = Some(self.takes);
    }

    fn resume(&mut self, fresh: bool) {
        self.left = None;
        self.seen.lock().unwrap().resumed += usize::from(!fresh);
    }

    fn poll(&mut self) -> Option<f32> {
        let left = self.left?;
        self.left = left.checked_sub(1);
        self.left.is_none().then_some(1.0)
    }
}

#[test]
fn a_judge_that_is_plugged_in_hears_the_turn_is_asked_once_a_pause_and_ends_it() {
    let mut bench = Bench::new(semantic(Eagerness::Low));
    let seen = Arc::new(Mutex::new(Seen::default()));
    bench.conversation.set_judge(Box::new(Fake { seen: Arc::clone(&seen), ..Fake::default() }));
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(900, 4));
    bench.run_ms(3000);
    let silence = bench.time_of(stopped).unwrap() + 20 - bench.backend.spans[0].1 / 48;
    assert!((400..450).contains(&silence), "{silence}");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.asked, 1);
    assert!(seen.samples > 16 * 1200, "{seen:?}");
    assert!(bench.decisions().iter().any(|(_, decision)| decision.kind == DecisionKind::Verdict));
}

#[test]
fn a_judge_has_nothing_to_do_under_server_vad() {
    let mut bench = Bench::new(Config::default());
    let seen = Arc::new(Mutex::new(Seen::default()));
    bench.conversation.set_judge(Box::new(Fake { seen: Arc::clone(&seen), ..Fake::default() }));
    bench.say(&speech::speech(900, 4));
    bench.run_ms(3000);
    assert_eq!(bench.count(stopped), 1);
    let seen = seen.lock().unwrap();
    assert_eq!((seen.samples, seen.asked), (0, 0));
}

#[test]
fn an_answer_is_found_when_no_packet_comes() {
    let mut bench = Bench::new(semantic(Eagerness::Low));
    bench.conversation.set_judge(Box::new(Fake { takes: 5, ..Fake::default() }));
    bench.say(&speech::speech(900, 4));
    // 240 ms of silence, then nothing: not before the question, and nothing to look for its answer but time.
    bench.run_ms(1140);
    bench.muted = true;
    bench.run_ms(3000);
    let silence = bench.time_of(stopped).unwrap() - bench.backend.spans[0].1 / 48;
    // 400 ms, and 300 ms in which the network may only have stalled.
    assert!((680..760).contains(&silence), "{silence}");
}

#[test]
fn nobody_speaking_for_the_idle_timeout_commits_the_silence_and_asks_for_a_response() {
    let mut bench = Bench::new(with_vad(|vad| vad.idle_timeout_ms = Some(5000)));
    bench.backend.says = Some(speech::speech(1000, 21));
    bench.run_ms(7000);
    assert_eq!(bench.count(create), 0, "it counts from the end of a reply");
    bench.say(&speech::speech(1000, 6));
    bench.run_ms(3600);
    let over = bench.time_of(|output| matches!(output, Output::Event(Event::PlayoutStopped { .. }))).unwrap();
    bench.run_ms(6000);
    let idle = |output: &Output| matches!(output, Output::Event(Event::IdleTimeout { .. }));
    let at = bench.time_of(idle).unwrap() - over;
    assert!((5000..5030).contains(&at), "{at}");
    assert_eq!((bench.count(create), bench.backend.turns.len()), (2, 2));
    let names: Vec<Event> =
        bench.events().into_iter().filter(|event| !matches!(event, Event::InputSilent { .. })).collect();
    let at = names.iter().position(|event| matches!(event, Event::IdleTimeout { .. })).unwrap();
    assert!(matches!(names[at + 1..at + 3], [Event::Committed { .. }, Event::ResponseCreated { .. }]), "{names:?}");
}

#[test]
fn a_user_who_speaks_is_not_idle() {
    let mut bench = Bench::new(with_vad(|vad| vad.idle_timeout_ms = Some(3000)));
    bench.backend.says = Some(speech::speech(400, 21));
    bench.say(&speech::speech(1000, 6));
    bench.run_ms(4000);
    bench.say(&speech::speech(4000, 7));
    bench.run_ms(4500);
    assert_eq!(bench.decided(DecisionKind::IdleTimeout), 0);
}

#[test]
fn a11_digital_zero_with_packets_is_told_once_and_no_packets_are_not() {
    let silent = |event: &Event| matches!(event, Event::InputSilent { .. });
    let mut bench = Bench::new(Config::default());
    bench.run_ms(60_000);
    let told: Vec<Event> = bench.events().into_iter().filter(silent).collect();
    assert_eq!(told, [Event::InputSilent { ms: 10_000 }]);
    let at = bench.time_of(|output| matches!(output, Output::Event(Event::InputSilent { .. }))).unwrap();
    assert!((9_900..10_100).contains(&at), "{at}");
    // Sound, and silence again.
    bench.say(&speech::noise(500, 300, 8));
    bench.run_ms(15_000);
    assert_eq!(bench.events().into_iter().filter(silent).count(), 2);

    let mut bench = Bench::new(Config::default());
    bench.say(&speech::noise(500, 300, 8));
    bench.run_ms(500);
    bench.muted = true;
    bench.run_ms(60_000);
    assert_eq!(bench.events().into_iter().filter(silent).count(), 0);
}

#[test]
fn t05_an_empty_item_after_an_interruption_leaves_nobody_waiting() {
    let mut bench = Bench::new(Config { response_timeout_ms: 2000, ..Config::default() });
    bench.backend.says = Some(speech::speech(4000, 21));
    // A turn that ends too soon: the user goes on and interrupts.
    bench.say(&speech::speech(800, 9));
    bench.run_ms(1700);
    assert_eq!(bench.conversation.state(), State::AgentSpeaking);
    bench.backend.says = Some(Vec::new());
    bench.say(&speech::speech(1200, 10));
    bench.run_ms(2500);
    assert_eq!(bench.backend.turns.len(), 2);
    assert_eq!(bench.conversation.state(), State::Listening, "an empty item is no speech");
    // Nothing at all, not even an empty item: the watchdog.
    bench.backend.delay = None;
    bench.say(&speech::speech(900, 11));
    bench.run_ms(4000);
    assert_eq!(bench.conversation.state(), State::Listening);
    assert_eq!(bench.decided(DecisionKind::ResponseTimeout), 1);
    // And the next question is answered.
    bench.backend.delay = Some(Duration::from_millis(5));
    bench.backend.says = Some(speech::speech(600, 12));
    let before = bench.edge.wire.len();
    bench.say(&speech::speech(900, 13));
    bench.run_ms(3000);
    assert_eq!(bench.edge.wire.len(), before + 30);
}

#[test]
fn t08_a_user_who_never_stops_is_cut_off_each_max_turn_and_memory_is_bounded() {
    let mut bench = Bench::new(Config { max_turn_ms: 20_000, ..Config::default() });
    bench.backend.says = Some(speech::speech(400, 11));
    bench.say(&speech::speech(120_000, 10));
    bench.run_ms(120_000);
    let long = bench.decisions().into_iter().filter(|(_, decision)| decision.kind == DecisionKind::MaxTurn);
    let at: Vec<u64> = long.map(|(at, _)| at).collect();
    println!("ended at {at:?}");
    assert!((5..=6).contains(&at.len()), "{at:?}");
    assert!((19_900..20_300).contains(&at[0]), "{at:?}");
    let longest = bench.backend.turns.iter().map(Vec::len).max().unwrap();
    assert!(longest <= 21 * 16_000, "{longest}");
}

#[test]
fn t09_an_interruption_has_300_ms_before_its_onset_without_a_gap() {
    let mut bench = Bench::new(Config::default());
    bench.backend.says = Some(speech::speech(6000, 21));
    bench.say(&speech::silence(600));
    bench.say(&speech::speech(1000, 22));
    bench.run_ms(3000);
    let onset = bench.elapsed_ms();
    bench.say(&speech::speech(700, 23));
    bench.run_ms(2000);
    // The bench checks that there is no gap.
    let begin = bench.log.iter().rev().find_map(|(_, output)| match output {
        Output::Event(Event::SpeechStarted { audio_start_ms, .. }) => Some(*audio_start_ms),
        _ => None,
    });
    let begin = begin.unwrap();
    // The first syllable is soft: the detector puts the onset up to two frames behind it.
    assert!(begin + 300 <= onset + 32, "speech at {onset}, audio from {begin}");
    assert_eq!(bench.backend.turns.len(), 2);
}

#[test]
fn t09_push_to_talk_keeps_300_ms_before_the_button() {
    let mut bench = Bench::new(Config { turn: TurnConfig { server_vad: None }, ..Config::default() });
    bench.say(&speech::silence(2000));
    bench.run_ms(2000);
    // The word begins as the button goes down, and its packets overtake the client's event.
    bench.say(&speech::speech(700, 24));
    bench.run_ms(120);
    bench.conversation.clear_input(bench.now);
    bench.drain();
    bench.run_ms(1000);
    assert!(bench.conversation.commit(bench.now));
    bench.drain();
    let from = bench.backend.spans[0].0 / 48;
    // The bench's packets are 20 ms ahead of its clock.
    assert!(bench.backend.begin / 48 <= 2140 - 300, "{}", bench.backend.begin / 48);
    assert!((1960..=2040).contains(&from), "{from}");
}

#[test]
fn t10_speech_before_the_backend_is_ready_is_one_turn() {
    let mut bench = Bench::new(Config::default());
    // The backend takes what is given and answers nothing before 3 s.
    bench.backend.delay = None;
    bench.say(&speech::speech(1800, 25));
    bench.run_ms(3000);
    assert_eq!(bench.conversation.state(), State::Thinking);
    let response = bench.log.iter().find_map(|(_, output)| match output {
        Output::Backend(BackendInput::CreateResponse { response, .. }) => Some(*response),
        _ => None,
    });
    bench.conversation.handle_backend(bench.now, BackendOutput::Ready);
    bench.drain();
    // Its greeting, unasked for, belongs to no response and is not heard.
    let pcm = voice::AgentAudio::Pcm(speech::speech(300, 1));
    let greeting = BackendOutput::Audio { response: voice::ResponseId(77), audio: pcm };
    bench.conversation.handle_backend(bench.now, greeting);
    bench.backend.says = Some(speech::speech(800, 26));
    bench.backend.due = Some((bench.now, response.unwrap()));
    bench.run_ms(2000);
    assert_eq!((bench.backend.turns.len(), bench.count(create)), (1, 1));
    assert_eq!(bench.edge.wire.len(), 40);
    assert!(bench.backend.turns[0].len() > 16 * 1700, "all of it");
}
