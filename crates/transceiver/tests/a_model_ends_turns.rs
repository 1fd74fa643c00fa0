//! The operator's model decides how long silence is waited for: real models, ONNX Runtime and calls, in virtual time.
//!
//! `tests/judge/run` gets the library and runs what is ignored here; `ONNXRUNTIME` is its path.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use link::proto::edge_message::Kind;
use link::proto::{
    ChannelMessage, ChannelOpened, EdgeMessage, OpenRequest, TransceiverMessage, Transport, transceiver_message,
};
use support::onnx::Graph;
use support::{Bench, request, speech};
use transceiver::call::{Call, CallConfig, CallOutput};
use transceiver::judge::{JudgeThread, Judges};
use transceiver::{Config, Transceiver, TurnEndConfig, TurnEndOutput};

/// The window of 8 s.
const WINDOW: usize = 128_000;

/// A config whose model is this one.
fn config(name: &str, graph: &Graph) -> TurnEndConfig {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.onnx"));
    std::fs::write(&path, graph.model()).unwrap();
    let library = std::env::var("ONNXRUNTIME").expect("ONNXRUNTIME is the path of libonnxruntime.so");
    TurnEndConfig { model: path.to_str().unwrap().to_owned(), library, ..TurnEndConfig::default() }
}

/// Virtual time stands still while the model looks.
fn wait(judges: &Judges) {
    let begun = Instant::now();
    while judges.totals().open() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", judges.totals());
        std::thread::yield_now();
    }
}

const SEMANTIC: &str = r#"{"type":"session.update","session":{"type":"realtime","audio":{"input":{"turn_detection":
    {"type":"semantic_vad","eagerness":"medium"}}}}}"#;

/// How long it is silent before the turn that sounds like this ends, in ms.
fn silence_after(sentence: &[i16], judge: Option<&JudgeThread>) -> u64 {
    let judges = judge.map(JudgeThread::judges);
    let call = CallConfig { judge: judges.clone(), ..CallConfig::default() };
    let mut bench = Bench::configured(call, &request("parrot"));
    bench.open_channel(support::CHANNEL, "oai-events");
    bench.client(SEMANTIC);
    assert!(bench.event("session.updated").is_some(), "{:?}", bench.events);
    bench.run_ms(600);
    bench.say(sentence);
    for _ in 0..6500 {
        bench.run_ms(1);
        judges.iter().for_each(wait);
    }
    let (at, event) = bench.event("input_audio_buffer.speech_stopped").unwrap();
    at - event["audio_end_ms"].as_u64().unwrap()
}

fn started(config: &TurnEndConfig) -> JudgeThread {
    JudgeThread::start(config).unwrap_or_else(|error| panic!("{error}")).unwrap()
}

/// The mean level of the window, above or below `level`, is what it looks at.
fn louder_than(takes: &[Option<u64>], level: f32) -> Graph {
    Graph::new(takes, &[Some(1), Some(1)])
        .constant("level", &[], &[level])
        .constant("steep", &[], &[40.0 / level])
        .node("Abs", &["x"], "abs")
        .node("ReduceMean", &["abs"], "mean")
        .node("Sub", &["mean", "level"], "over")
        .node("Mul", &["over", "steep"], "logit")
        .node("Sigmoid", &["logit"], "y")
}

/// A sentence, and the same 12 dB softer.
fn sentences() -> [Vec<i16>; 2] {
    let loud = speech::speech(1400, 3);
    let soft = loud.iter().map(|sample| sample / 4).collect();
    [loud, soft]
}

/// Between the levels of both.
fn level_between() -> f32 {
    let sum: f32 = sentences()[0].iter().map(|&sample| f32::from(sample).abs() / 32_768.0).sum();
    0.6 * sum / WINDOW as f32
}

#[test]
#[ignore = "needs ONNX Runtime: tests/judge/run"]
fn a_turn_that_sounds_over_ends_sooner_and_one_that_does_not_later_than_silence_alone_would_end_it() {
    let [loud, soft] = sentences();
    let plain = silence_after(&loud, None);
    assert!((560..=640).contains(&plain), "{plain}");
    for (name, length) in [("fixed", Some(WINDOW as u64)), ("any", None)] {
        let judge = started(&config(name, &louder_than(&[Some(1), length], level_between())));
        let over = silence_after(&loud, Some(&judge));
        assert!((210..=330).contains(&over), "{name}: {over}");
        let open = silence_after(&soft, Some(&judge));
        assert!((3960..=4060).contains(&open), "{name}: {open}");
        let totals = judge.judges().totals();
        assert_eq!((totals.dropped, totals.failed), (0, 0), "{totals:?}");
        assert!(totals.answered >= 2, "{totals:?}");
    }
}

/// The client is told that the turn is over.
fn has_stopped(output: &CallOutput) -> bool {
    let CallOutput::Message(TransceiverMessage { kind: Some(transceiver_message::Kind::ChannelMessage(message)) }) =
        output
    else {
        return false;
    };
    let event: serde_json::Value = serde_json::from_slice(&message.data).unwrap();
    event["type"] == "input_audio_buffer.speech_stopped"
}

/// The same over a WebSocket: audio that is appended before the turn ends, behind the sentence, in ms.
fn silence_behind(sentence: &[i16], judge: &JudgeThread) -> u64 {
    let (now, judges) = (Instant::now(), judge.judges());
    let asked = OpenRequest { transport: Transport::Websocket.into(), ..request("parrot") };
    let config = CallConfig { judge: Some(judges.clone()), ..CallConfig::default() };
    let mut call = Call::new(now, config, &asked, support::SLOT, 1);
    let opened = ChannelOpened { channel: 0, label: "oai-events".to_owned() };
    call.handle_message(now, EdgeMessage { kind: Some(Kind::ChannelOpened(opened)) });
    let say = |call: &mut Call, now, event: &str| {
        let message = ChannelMessage { channel: 0, binary: false, data: event.into() };
        call.handle_message(now, EdgeMessage { kind: Some(Kind::ChannelMessage(message)) });
        std::iter::from_fn(|| call.poll_output()).filter(has_stopped).count() == 1
    };
    say(&mut call, now, SEMANTIC);
    let mut pcm = Vec::new();
    voice::Resampler::new(16_000, 24_000).process(&[sentence, &[0; 16 * 6000]].concat(), &mut pcm);
    let piece_ms = 20;
    for (piece, pcm) in (1..).zip(pcm.chunks(24 * piece_ms)) {
        let bytes: Vec<u8> = pcm.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let event = serde_json::json!({"type": "input_audio_buffer.append", "audio": STANDARD.encode(bytes)});
        let passed = (piece * piece_ms) as u64;
        if say(&mut call, now + Duration::from_millis(passed), &event.to_string()) {
            return passed - sentence.len() as u64 / 16;
        }
        wait(&judges);
    }
    panic!("the turn does not end");
}

#[test]
#[ignore = "needs ONNX Runtime: tests/judge/run"]
fn the_model_judges_turns_over_a_websocket_too() {
    let [loud, soft] = sentences();
    let judge = started(&config("websocket", &louder_than(&[Some(1), None], level_between())));
    let over = silence_behind(&loud, &judge);
    assert!((200..=340).contains(&over), "{over}");
    let open = silence_behind(&soft, &judge);
    assert!((3940..=4080).contains(&open), "{open}");
}

/// Vowels have their power in the lower bands: weighs the lower half against the upper.
fn deep(sign: f32) -> Graph {
    let weights: Vec<f32> = (0..80).map(|band| if band < 40 { sign } else { -sign }).collect();
    Graph::new(&[None, Some(80), Some(800)], &[None, Some(1), Some(1)])
        .constant("weights", &[80, 1], &weights)
        .node("Mul", &["x", "weights"], "weighed")
        .node("ReduceMean", &["weighed"], "mean")
        .constant("steep", &[], &[500.0])
        .node("Mul", &["mean", "steep"], "y")
}

#[test]
#[ignore = "needs ONNX Runtime: tests/judge/run"]
fn a_model_of_log_mel_features_gets_them_by_band_and_its_logit_is_read() {
    let [loud, _] = sentences();
    for (name, sign, wanted) in [("deep", 1.0, 210..=330), ("high", -1.0, 3960..=4060)] {
        let config = TurnEndConfig { output: TurnEndOutput::Logit, ..config(name, &deep(sign)) };
        let silence = silence_after(&loud, Some(&started(&config)));
        assert!(wanted.contains(&silence), "{name}: {silence}");
    }
}

fn refusal(config: &TurnEndConfig) -> String {
    JudgeThread::start(config).unwrap_err().to_string()
}

#[test]
#[ignore = "needs ONNX Runtime: tests/judge/run"]
fn a_model_that_cannot_serve_is_refused_at_the_start_with_the_reason() {
    let pair = Graph::new(&[Some(1), Some(16_000)], &[Some(1), Some(16_000)]).node("Abs", &["x"], "y");
    let low = Graph::new(&[Some(1), None], &[Some(1), Some(1)])
        .constant("low", &[], &[-3.5])
        .node("ReduceMean", &["x"], "mean")
        .node("Add", &["mean", "low"], "y");
    let short = louder_than(&[Some(1), Some(400)], 0.1);
    let odd = Graph::new(&[Some(1), None], &[Some(1), Some(1)]).node("NoSuchOperator", &["x"], "y");
    for (name, graph, reason) in [
        ("many", &pair, "it gives float32 [1, 16000]"),
        ("low", &low, "its number -3.5 is no probability"),
        ("short", &short, "it takes 400 samples"),
        ("odd", &odd, "NoSuchOperator"),
    ] {
        let said = refusal(&config(name, graph));
        assert!(said.contains("voice.turn_end.model") && said.contains(reason), "{name}: {said}");
    }
    let config = config("text", &Graph::default());
    std::fs::write(&config.model, "no model").unwrap();
    let said = refusal(&config);
    assert!(said.contains("name a model in ONNX's format"), "{said}");
}

/// A config of a transceiver that judges with this.
fn transceiver(turn_end: TurnEndConfig) -> Config {
    let mut config = Config { state_dir: format!("{}/judge", env!("CARGO_TARGET_TMPDIR")), ..Config::default() };
    config.link_bind.set_port(0);
    config.voice.turn_end = turn_end;
    config
}

#[test]
#[ignore = "needs ONNX Runtime: tests/judge/run"]
fn a_transceiver_with_a_model_starts_and_ends() {
    let turn_end = config("whole", &louder_than(&[Some(1), None], 0.1));
    drop(Transceiver::start(&transceiver(turn_end)).unwrap());
}

#[test]
fn a_transceiver_whose_model_is_not_there_does_not_start() {
    let turn_end = TurnEndConfig { model: "/nonexistent/turn.onnx".to_owned(), ..TurnEndConfig::default() };
    let said = Transceiver::start(&transceiver(turn_end)).unwrap_err().to_string();
    assert!(said.contains("voice.turn_end.model") && said.contains("/nonexistent/turn.onnx"), "{said}");
}
