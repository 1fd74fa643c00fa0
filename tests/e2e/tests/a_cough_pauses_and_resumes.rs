//! A sound over the reply that is too short to be an interruption.

mod scenes;

use scenes::{a_cough_pauses_and_resumes, bad, good};

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
