//! Passwords stay out of `Debug` output.

use rtc::{Credentials, Fragment, Offer, Password, Renewal};

use crate::offers::{AUDIO, local};

/// Ours, our next one, and the client's.
const SECRETS: [&str; 3] = ["0123456789abcdefghijkl", "another-password-of-24-b", "vw5LmwG4y/e6dPP/zAP9Gp5k"];

#[test]
fn nothing_that_holds_a_password_shows_it() {
    let local = local();
    let offer = AUDIO.lines().map(|line| {
        let line = if line.starts_with("a=ice-pwd:") { format!("a=ice-pwd:{}", SECRETS[2]) } else { line.to_owned() };
        line + "\r\n"
    });
    let offer = Offer::parse(&offer.collect::<String>()).unwrap();
    let accepted = offer.accept(&local);
    let fresh = Credentials { ufrag: "fresh".to_owned(), password: SECRETS[1].into() };
    let with = Renewal { fingerprint: "AA:BB", candidates: &[], version: 2, ice_session: 1, fresh: &fresh };
    let fragment = Fragment::parse(&format!("a=ice-ufrag:ysXw\r\na=ice-pwd:{}\r\n", SECRETS[2])).unwrap();
    let restarted = accepted.setup.restart(&fragment, &with).unwrap();
    let renewed = accepted.setup.renew(&offer, &with).unwrap();
    assert!(accepted.answer.contains(SECRETS[0]) && restarted.answer.contains(SECRETS[1]), "the client is told");

    let shown = [
        format!("{local:?}"),
        format!("{offer:?}"),
        format!("{accepted:?}"),
        format!("{with:?}"),
        format!("{fragment:?}"),
        format!("{restarted:?}"),
        format!("{renewed:#?}"),
    ];
    for text in shown {
        for secret in SECRETS {
            assert!(!text.contains(secret), "{text}");
        }
    }
    assert_eq!(format!("{:?}", Password::from("x")), "[redacted]");
}

#[test]
fn passwords_are_equal_by_every_byte() {
    let password = Password::from("0123456789abcdefghijkl");
    assert_eq!(password, Password::from("0123456789abcdefghijkl"));
    for other in ["", "0123456789abcdefghijk", "0123456789abcdefghijkm", "1123456789abcdefghijkl"] {
        assert_ne!(password, Password::from(other));
    }
}
