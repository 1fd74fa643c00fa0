//! What a call holds at the transceiver. The figures are printed:
//! `cargo nextest run -p transceiver --test a_call_holds_little --no-capture`.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail by panicking, as tests do")]

mod support;

use support::{Bench, speech};

#[global_allocator]
static ALLOCATOR: net::alloc::Counting = net::alloc::Counting;

/// KiB that are given back when the call is dropped.
fn held(bench: Bench) -> i64 {
    let Bench { call, .. } = bench;
    let before = net::alloc::thread().live_bytes;
    drop(call);
    (before - net::alloc::thread().live_bytes) / 1024
}

/// A call that has heard and answered so many turns, of `speech_ms` each, and waits for the next.
fn between_turns(turns: u32, speech_ms: usize) -> Bench {
    let mut bench = Bench::opened("parrot");
    for turn in 0..turns {
        bench.say(&speech::speech(speech_ms, 7 + turn));
        bench.run_ms(2 * speech_ms as u64 + 2000);
    }
    bench
}

#[test]
fn a_call_that_nobody_has_spoken_in_holds_its_codecs_and_little_else() {
    let idle = held(between_turns(0, 0));
    println!("idle: {idle} KiB");
    assert!(idle <= 160, "{idle} KiB");
}

#[test]
fn a_call_in_turns_holds_what_the_parrot_will_say_and_what_is_on_its_way() {
    let between = held(between_turns(3, 4000));
    let mut bench = between_turns(2, 4000);
    bench.say(&speech::speech(4000, 9));
    bench.run_ms(5500);
    let answering = held(bench);
    println!("between turns of 4 s: {between} KiB; while it answers: {answering} KiB");
    // 4 s are 125 KiB: kept by the parrot, and once more while they wait to be encoded.
    assert!(between <= 340, "{between} KiB");
    assert!(answering <= 420, "{answering} KiB");
}
