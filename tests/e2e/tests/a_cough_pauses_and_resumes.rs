//! A sound over the reply that is too short to be an interruption.

mod scenes;

use scenes::{a_cough_pauses_and_resumes, a_hum_is_resumed_from_a_border, bad, good};

#[test]
fn a_cough_only_pauses_and_nothing_of_the_reply_is_lost() {
    a_cough_pauses_and_resumes(&good(), 1);
}

#[test]
fn a_cough_only_pauses_and_nothing_of_the_reply_is_lost_over_a_bad_network() {
    for seed in 1..=4 {
        a_cough_pauses_and_resumes(&bad(), seed);
    }
}

#[test]
fn after_a_pause_for_a_hum_the_reply_is_taken_up_at_a_border() {
    a_hum_is_resumed_from_a_border(&good(), 1);
}
