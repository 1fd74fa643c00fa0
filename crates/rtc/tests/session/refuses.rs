//! Clients that are not who the offer says.

use std::time::Duration;

use rtc::{CloseReason, Event};

use crate::pair::{Pair, Plan};

#[test]
fn a_certificate_that_the_offer_does_not_name() {
    for active in [true, false] {
        let mut pair =
            Pair::new(Plan { active, tamper: |setup| setup.fingerprints[0].digest[0] ^= 1, ..Plan::default() });
        let refused = Event::Closed(CloseReason::FingerprintMismatch);
        pair.until(Duration::from_secs(5), |pair| pair.server_event(|event| *event == refused).is_some());
        assert_eq!(pair.server_event(|event| matches!(event, Event::Connected { .. })), None, "active: {active}");
        pair.run(Duration::from_secs(2));
        assert_eq!(pair.heard, []);
    }
}

#[test]
fn a_password_that_the_answer_does_not_give() {
    let mut pair =
        Pair::new(Plan { tamper: |setup| setup.local_password = "another password".into(), ..Plan::default() });
    pair.run(Duration::from_secs(2));
    assert_eq!(pair.server_events, []);
    assert!(!pair.discards.is_empty());
    assert!(pair.discards.iter().all(|discard| *discard == rtc::Discard::StunIntegrity));
}
