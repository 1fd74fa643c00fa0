//! Whatever comes in, in whatever order: within bounded time the conversation answers or listens.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may fail, and its signals fit")]

mod common;

use std::time::Duration;

use common::speech::Random;
use common::{Bench, speech};
use voice::{
    AgentAudio, BackendOutput, Config, Failure, MediaFrame, Playout, ResponseId, State, TurnConfig, Utterance,
};

/// Random acts of the user, the network, the backend, the edge and the client.
fn act(bench: &mut Bench, random: &mut Random) {
    let now = bench.now;
    let response = ResponseId(u64::from(random.below(6)));
    let utterance = Utterance(random.below(6));
    let sent = u64::from(random.below(100_000));
    match random.below(26) {
        0..6 => {
            let length = 20 + random.below(900) as usize;
            bench.say(&speech::speech(length, random.next()));
        }
        6 | 7 => bench.say(&speech::noise(200, 8000, random.next())),
        8 => bench.muted = !bench.muted,
        9 => bench.seq = bench.seq.wrapping_add(random.below(12) as u16),
        10 => bench.timestamp = bench.timestamp.wrapping_add(random.below(480_000)),
        11 => {
            bench.seq = random.next() as u16;
            bench.timestamp = random.next();
        }
        12 => {
            let payload: Vec<u8> = (0..random.below(60)).map(|_| random.next() as u8).collect();
            let frame = MediaFrame::opus(random.next() as u16, random.next(), &payload);
            bench.conversation.handle_media(now, frame, 0);
        }
        13 => bench.backend.delay = (random.below(3) > 0).then(|| Duration::from_millis(u64::from(random.below(1500)))),
        14 => bench
            .conversation
            .handle_backend(now, BackendOutput::Audio { response, audio: AgentAudio::Pcm(vec![100; 3000]) }),
        15 => bench.conversation.handle_backend(now, BackendOutput::ResponseDone { response }),
        16 => {
            let fault = BackendOutput::Fault { response: None, failure: Failure::new("away", ""), retryable: true };
            bench.conversation.handle_backend(now, fault);
        }
        17 => bench.conversation.handle_playout(now, Playout::Finished { utterance, sent }),
        18 => bench
            .conversation
            .handle_playout(now, Playout::Flushed { utterance, sent, received: voice::Received::default() }),
        19 => bench.conversation.handle_playout(now, Playout::Started { utterance }),
        20 => drop(bench.conversation.create_response(now)),
        21 => drop(bench.conversation.cancel(now)),
        22 => bench.conversation.clear_output(now),
        23 => bench.conversation.clear_input(now),
        24 => drop(bench.conversation.commit(now)),
        _ => {
            let manual = random.below(3) == 0;
            let turn = if manual { TurnConfig { server_vad: None } } else { TurnConfig::default() };
            bench.conversation.set_turn(turn);
        }
    }
    bench.drain();
}

#[test]
fn every_state_is_left() {
    for seed in 1..=12 {
        println!("seed {seed}");
        let mut random = Random(seed * 2_654_435);
        let mut bench = Bench::new(Config { response_timeout_ms: 2000, max_turn_ms: 5000, ..Config::default() });
        bench.lenient = true;
        for _ in 0..60 {
            act(&mut bench, &mut random);
            bench.run_ms(u64::from(random.below(400)));
        }
        // The user falls silent, the network is whole, the backend answers nothing more.
        bench.conversation.set_turn(TurnConfig::default());
        bench.microphone.clear();
        bench.muted = false;
        bench.run_ms(15_000);
        assert_eq!(bench.conversation.state(), State::Listening, "seed {seed}");
        assert!(!bench.edge.is_paused(), "seed {seed}: paused for ever");
        // And hears the next question and answers it.
        bench.backend.delay = Some(Duration::from_millis(5));
        bench.backend.says = Some(speech::speech(400, 1));
        let before = bench.edge.wire.len();
        bench.say(&speech::speech(900, seed));
        bench.run_ms(4000);
        assert!(bench.edge.wire.len() >= before + 20, "seed {seed}: no answer");
        assert_eq!(bench.conversation.state(), State::Listening, "seed {seed}");
    }
}

#[test]
fn one_input_twice_is_one_outcome_twice() {
    let run = || {
        let mut random = Random(77);
        let mut bench = Bench::new(Config::default());
        bench.lenient = true;
        for _ in 0..40 {
            act(&mut bench, &mut random);
            bench.run_ms(u64::from(random.below(300)));
        }
        bench.log
    };
    assert_eq!(run(), run());
}

#[test]
fn speech_through_loss_is_one_turn() {
    let mut bench = Bench::new(Config::default());
    let mut random = Random(5);
    let sentence = speech::speech(3000, 61);
    bench.say(&speech::silence(600));
    bench.say(&sentence);
    bench.muted = true;
    for index in 0..250 {
        let payload = bench.encode();
        // Three of fifty in a row, and 3 % alone.
        if index % 50 < 47 && random.below(100) >= 3 {
            bench.send(&payload);
        } else {
            bench.seq = bench.seq.wrapping_add(1);
            bench.timestamp = bench.timestamp.wrapping_add(960);
        }
        bench.run_ms(20);
    }
    assert_eq!(bench.backend.turns.len(), 1);
    let (from, to) = bench.backend.spans[0];
    assert!(from.abs_diff(600 * 48) < 60 * 48 && to.abs_diff(3600 * 48) < 80 * 48, "{} to {}", from / 48, to / 48);
    let loudest = bench.backend.turns[0].iter().map(|sample| sample.unsigned_abs()).max().unwrap();
    let said = sentence.iter().map(|sample| sample.unsigned_abs()).max().unwrap();
    assert!(loudest < said + said / 2, "{loudest} of {said}: a filled hole is louder than the speech around it");
}
