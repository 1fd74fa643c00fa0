//! A turn of the user's: heard, ended by silence, answered.

mod common;

use common::{Bench, speech};
use voice::{BackendInput, Config, Event, Output, ServerVad, State, TurnConfig};

fn started(output: &Output) -> bool {
    matches!(output, Output::Event(Event::SpeechStarted { .. }))
}

#[test]
fn a_sentence_is_heard_and_said_back() {
    let mut bench = Bench::new(Config::default());
    bench.run_ms(600);
    let sentence = speech::speech(1400, 1);
    bench.say(&sentence);
    bench.run_ms(6000);
    for (at, output) in &bench.log {
        println!("{at:5} {output:?}");
    }
    println!("{:?}", bench.conversation.stats());
    assert_eq!(bench.backend.turns.len(), 1);
}
