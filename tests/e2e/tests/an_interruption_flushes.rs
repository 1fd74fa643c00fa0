//! The user speaks over the reply.

mod scenes;

use scenes::{an_interruption_flushes, bad, good};

#[test]
fn speech_over_the_reply_stops_it_and_is_answered_itself() {
    an_interruption_flushes(&good(), 1);
}

#[test]
fn speech_over_the_reply_stops_it_and_is_answered_itself_over_a_bad_network() {
    for seed in 1..=4 {
        an_interruption_flushes(&bad(), seed);
    }
}
