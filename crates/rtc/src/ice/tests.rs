//! One agent, virtual time, checks from the other end of a wire.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::request::{ICE_CONTROLLED, LOCAL_UFRAG, PASSWORD, Request, USE_CANDIDATE, USERNAME};

use super::credentials::GRACE;
use super::paths::{AMPLIFICATION, CHALLENGE_FOR, MOVE_INTERVAL, PATH_LIFETIME, PATHS_MAX};
use super::{Agent, CheckOutcome, Expired, Timings};
use crate::sdp::Credentials;
use crate::stun::{IntegrityKey, Refusal};
use crate::{Discard, Path};

const SETUP: Duration = Duration::from_secs(20);
const CONSENT: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

struct Fixture {
    agent: Agent,
    start: Instant,
    now: Instant,
    out: Vec<u8>,
}

impl Fixture {
    fn new() -> Self {
        let now = Instant::now();
        let timings = Timings { setup: SETUP, consent: CONSENT };
        let agent = Agent::new(now, IntegrityKey::new(PASSWORD), LOCAL_UFRAG, timings);
        Self { agent, start: now, now, out: Vec::new() }
    }

    fn at(&mut self, since_start: Duration) -> &mut Self {
        self.now = self.start + since_start;
        self
    }

    fn send(&mut self, path: Path, datagram: &[u8]) -> Result<CheckOutcome, Discard> {
        self.agent.handle_check(self.now, path, datagram, &mut self.out, |_, _| {})
    }

    fn check(&mut self, path: Path) -> CheckOutcome {
        self.send(path, &Request::browser().sealed()).unwrap()
    }

    fn nominate(&mut self, path: Path) -> CheckOutcome {
        self.send(path, &Request::browser().with(USE_CANDIDATE, &[]).sealed()).unwrap()
    }

    fn due(&mut self) -> Vec<Expired> {
        std::iter::from_fn(|| self.agent.handle_timeout(self.now)).collect()
    }
}

fn path(port: u16) -> Path {
    Path::udp(SocketAddr::from(([192, 0, 2, 1], 3478)), SocketAddr::from(([198, 51, 100, 1], port)))
}

const ANSWERED: CheckOutcome = CheckOutcome::Answered { displaced: None, challenged: false };
const CHALLENGED: CheckOutcome = CheckOutcome::Answered { displaced: None, challenged: true };

#[test]
fn the_first_check_selects_its_path_without_nomination() {
    let mut f = Fixture::new();
    assert_eq!(f.agent.selected(), None);
    assert!(!f.agent.is_checked(path(1), f.now));
    assert_eq!(f.check(path(1)), ANSWERED);
    assert_eq!(f.agent.selected(), Some(path(1)));
    assert!(f.agent.is_checked(path(1), f.now));
    assert!(!f.agent.is_checked(path(2), f.now));
}

#[test]
fn a_check_without_nomination_adds_its_path_and_moves_nothing() {
    let mut f = Fixture::new();
    let _ = f.check(path(1));
    assert_eq!(f.check(path(2)), ANSWERED);
    assert_eq!(f.agent.selected(), Some(path(1)));
    assert!(f.agent.is_checked(path(2), f.now));
}

#[test]
fn nomination_moves_to_its_path_and_back_until_one_is_proven() {
    let mut f = Fixture::new();
    let _ = f.nominate(path(1));
    assert_eq!(f.nominate(path(2)), ANSWERED);
    assert_eq!(f.agent.selected(), Some(path(2)));
    assert_eq!(f.nominate(path(2)), ANSWERED);
    assert_eq!(f.nominate(path(1)), ANSWERED);
    assert_eq!(f.agent.selected(), Some(path(1)));
    f.agent.select(f.now, path(1));
    assert_eq!(f.nominate(path(2)), CHALLENGED);
    assert_eq!(f.agent.selected(), Some(path(1)));
}

/// Once something fresh has come from a path, a check alone may be one that was recorded.
#[test]
fn a_proven_path_is_left_for_another_proven_one_alone() {
    let mut f = Fixture::new();
    let _ = f.check(path(1));
    f.agent.select(f.now, path(1));
    let _ = f.nominate(path(2));
    assert_eq!(f.agent.selected(), Some(path(1)));
    f.agent.select(f.now, path(3));
    assert_eq!(f.agent.selected(), Some(path(1)), "no check came from there");
    f.agent.select(f.now, path(2));
    assert_eq!(f.agent.selected(), Some(path(2)));
}

#[test]
fn what_follows_an_expired_path_is_not_proven() {
    let mut f = Fixture::new();
    let _ = f.check(path(1));
    f.agent.select(f.now, path(1));
    f.at(SECOND * 20);
    let _ = f.check(path(2));
    f.at(PATH_LIFETIME);
    assert_eq!(f.due(), [Expired::Path(path(1))]);
    let _ = f.nominate(path(3));
    assert_eq!(f.agent.selected(), Some(path(3)));
}

/// The same remote address seen at two addresses of ours makes two paths.
#[test]
fn paths_differ_by_their_local_address() {
    let mut f = Fixture::new();
    let other = Path { local: SocketAddr::from(([192, 0, 2, 2], 3478)), ..path(1) };
    let _ = f.check(path(1));
    assert_eq!(f.nominate(other), ANSWERED);
    assert_eq!(f.agent.selected(), Some(other));
}

/// Firefox dies mid-turn of consent checks that go unanswered because they nominate nothing.
#[test]
fn every_consent_check_is_answered() {
    let mut f = Fixture::new();
    let _ = f.nominate(path(1));
    for second in 1..100 {
        f.at(SECOND * second);
        assert_eq!(f.check(path(1)), ANSWERED);
        assert_eq!(f.out[..2], [0x01, 0x01], "success at {second} s");
        assert_eq!(f.due(), []);
    }
}

#[test]
fn i09_a_forged_check_changes_nothing_and_is_not_answered() {
    let mut f = Fixture::new();
    let _ = f.check(path(1));
    let forged = Request::browser().with(USE_CANDIDATE, &[]).integrity("a guess of 22 letters.").fingerprint().bytes();
    f.at(SECOND);
    assert_eq!(f.send(path(666), &forged), Err(Discard::StunIntegrity));
    assert!(f.out.is_empty());
    assert!(!f.agent.is_checked(path(666), f.now));
    assert_eq!(f.agent.selected(), Some(path(1)));
    assert_eq!(f.agent.poll_timeout(), Some(f.start + CONSENT), "a forged check is no consent");
}

#[test]
fn a_check_for_another_ufrag_is_dropped_though_its_key_is_right() {
    let mut f = Fixture::new();
    let request = Request::empty().with(USERNAME, b"server2:cli").sealed();
    assert_eq!(f.send(path(1), &request), Err(Discard::StunIntegrity));
    assert_eq!(f.agent.selected(), None);
}

#[test]
fn any_ufrag_of_the_client_is_taken() {
    let mut f = Fixture::new();
    let request = Request::empty().with(USERNAME, b"server:another").sealed();
    assert_eq!(f.send(path(1), &request), Ok(ANSWERED));
}

#[test]
fn i12_a_client_that_says_controlled_is_refused_then_switches_and_connects() {
    let mut f = Fixture::new();
    let controlled = Request::empty().with(USERNAME, b"server:cli").with(ICE_CONTROLLED, &[0; 8]);
    assert_eq!(f.send(path(1), &controlled.sealed()), Ok(CheckOutcome::Refused(Refusal::RoleConflict)));
    assert_eq!(f.out[..2], [0x01, 0x11]);
    assert_eq!(f.agent.selected(), None);
    assert_eq!(f.nominate(path(1)), ANSWERED);
}

/// An unauthenticated ICE-CONTROLLED must not turn anybody's role.
#[test]
fn i12_role_conflict_is_told_to_nobody_without_the_key() {
    let mut f = Fixture::new();
    let forged = Request::browser().with(ICE_CONTROLLED, &[0; 8]).integrity("guess").fingerprint().bytes();
    assert_eq!(f.send(path(1), &forged), Err(Discard::StunIntegrity));
    assert!(f.out.is_empty());
}

#[test]
fn i07_an_unknown_required_attribute_makes_no_path() {
    let mut f = Fixture::new();
    let request = Request::browser().with(0x7F01, &[]).sealed();
    assert_eq!(f.send(path(1), &request), Ok(CheckOutcome::Refused(Refusal::UnknownAttributes)));
    assert!(!f.agent.is_checked(path(1), f.now));
}

#[test]
fn a_ninth_path_displaces_the_one_checked_longest_ago_but_the_selected() {
    let mut f = Fixture::new();
    let _ = f.check(path(1)); // selected, and the oldest
    for port in 2..=8 {
        f.at(SECOND * u32::from(port));
        let _ = f.check(path(port));
    }
    let _ = f.check(path(2)); // renewed
    let outcome = f.check(path(9));
    assert_eq!(outcome, CheckOutcome::Answered { displaced: Some(path(3)), challenged: false });
    assert_eq!(f.agent.paths().count(), PATHS_MAX);
    assert!(!f.agent.is_checked(path(3), f.now));
    assert_eq!(f.agent.selected(), Some(path(1)));
}

#[test]
fn a_thousand_ports_keep_eight_paths() {
    let mut f = Fixture::new();
    for port in 0..1000 {
        let _ = f.nominate(path(port));
    }
    assert_eq!(f.agent.paths().collect::<Vec<_>>(), (992..1000).map(path).collect::<Vec<_>>());
}

#[test]
fn a_path_lives_thirty_seconds_from_its_last_check() {
    let mut f = Fixture::new();
    let _ = f.check(path(1));
    f.at(SECOND * 10);
    let _ = f.check(path(2));
    f.at(SECOND * 12);
    let _ = f.check(path(1));

    f.at(SECOND * 10 + PATH_LIFETIME - Duration::from_nanos(1));
    assert_eq!(f.due(), []);
    assert!(f.agent.is_checked(path(2), f.now));
    assert_eq!(f.agent.poll_timeout(), Some(f.start + SECOND * 10 + PATH_LIFETIME));

    f.at(SECOND * 10 + PATH_LIFETIME);
    assert!(!f.agent.is_checked(path(2), f.now), "even before the timeout is handled");
    assert_eq!(f.due(), [Expired::Path(path(2))]);
    assert_eq!(f.agent.selected(), Some(path(1)));
}

/// A client whose address changed and that never nominates anew.
#[test]
fn the_path_checked_last_follows_when_the_selected_one_expires() {
    let mut f = Fixture::new();
    let _ = f.nominate(path(1));
    let _ = f.check(path(2));
    for second in [5, 10, 15, 20, 25] {
        f.at(SECOND * second);
        let _ = f.check(path(3));
    }
    f.at(PATH_LIFETIME);
    assert_eq!(f.due(), [Expired::Path(path(1)), Expired::Path(path(2))]);
    assert_eq!(f.agent.selected(), Some(path(3)));
}

#[test]
fn i15_consent_expires_thirty_seconds_after_the_last_valid_check() {
    let mut f = Fixture::new();
    let _ = f.check(path(1));
    f.at(SECOND * 25); // every check between was lost
    let _ = f.check(path(1));
    f.at(SECOND * 25 + CONSENT - Duration::from_nanos(1));
    assert_eq!(f.due(), []);
    assert_eq!(f.agent.poll_timeout(), Some(f.start + SECOND * 25 + CONSENT));
    f.at(SECOND * 25 + CONSENT);
    assert_eq!(f.due(), [Expired::Consent, Expired::Path(path(1))]);
    assert_eq!(f.agent.selected(), None);
    assert_eq!(f.agent.poll_timeout(), None);
}

/// Any path's checks will do.
#[test]
fn consent_is_the_sessions_not_the_paths() {
    let mut f = Fixture::new();
    let _ = f.check(path(1));
    f.at(SECOND * 20);
    let _ = f.check(path(2));
    f.at(SECOND * 40);
    assert_eq!(f.due(), [Expired::Path(path(1))]);
    f.at(SECOND * 50);
    assert_eq!(f.due(), [Expired::Consent, Expired::Path(path(2))]);
}

#[test]
fn i11_the_first_check_may_come_until_the_setup_timeout() {
    let mut f = Fixture::new();
    assert_eq!(f.agent.poll_timeout(), Some(f.start + SETUP));
    f.at(SECOND * 8);
    assert_eq!(f.due(), []);
    assert_eq!(f.check(path(1)), ANSWERED);
    assert_eq!(f.agent.poll_timeout(), Some(f.start + SECOND * 8 + CONSENT));
}

#[test]
fn without_any_check_the_setup_timeout_ends_it_once() {
    let mut f = Fixture::new();
    f.at(SETUP);
    assert_eq!(f.due(), [Expired::Consent]);
    assert_eq!(f.agent.poll_timeout(), None);
    f.at(SETUP * 2);
    assert_eq!(f.due(), []);
}

#[test]
fn no_garbage_makes_a_path() {
    let mut f = Fixture::new();
    let request = Request::browser().sealed();
    for end in 0..request.len() {
        assert!(f.send(path(1), &request[..end]).is_err());
    }
    assert_eq!(f.agent.paths().count(), 0);
}

/// A session whose client was heard at `path(1)`.
fn proven() -> Fixture {
    let mut f = Fixture::new();
    let _ = f.check(path(1));
    f.agent.select(f.now, path(1));
    f
}

#[test]
fn any_check_from_elsewhere_starts_a_challenge_there() {
    for nominates in [false, true] {
        let mut f = proven();
        assert_eq!(f.agent.duplicate(f.now, 100), None);
        let outcome = if nominates { f.nominate(path(2)) } else { f.check(path(2)) };
        assert_eq!(outcome, CHALLENGED);
        assert_eq!(f.agent.selected(), Some(path(1)), "a check moves nothing");
        assert_eq!(f.agent.duplicate(f.now, 100), Some(path(2)));
    }
}

#[test]
fn before_anything_is_proven_there_is_no_challenge() {
    let mut f = Fixture::new();
    let _ = f.check(path(1));
    assert_eq!(f.check(path(2)), ANSWERED);
    assert_eq!(f.agent.duplicate(f.now, 100), None);
}

/// Whoever replays a check from a victim's address sends it less than three times what he spends.
#[test]
fn no_more_than_three_times_what_came_goes_to_a_challenged_path() {
    let mut f = proven();
    let check = Request::browser().sealed();
    let mut came = 0;
    let mut went = 0;
    for millisecond in 0..3000 {
        f.at(Duration::from_millis(millisecond));
        if millisecond % 200 == 0 {
            f.send(path(2), &check).map(drop).unwrap();
            came += check.len();
            went += f.out.len();
        }
        while f.agent.duplicate(f.now, 120).is_some() {
            went += 120;
        }
    }
    assert!(went > came, "it is used: {went} of {came}");
    assert!(went <= AMPLIFICATION * came, "{went} for {came}");
}

#[test]
fn a_challenge_is_over_after_a_second_and_another_follows_later() {
    let mut f = proven();
    assert_eq!(f.check(path(2)), CHALLENGED);
    f.at(CHALLENGE_FOR - Duration::from_nanos(1));
    assert_eq!(f.check(path(2)), ANSWERED, "the same one");
    assert_eq!(f.agent.duplicate(f.now, 10), Some(path(2)));
    f.at(CHALLENGE_FOR);
    assert_eq!(f.agent.duplicate(f.now, 10), None);
    assert_eq!(f.check(path(2)), ANSWERED, "not yet again");
    assert_eq!(f.agent.duplicate(f.now, 10), None);
    f.at(SECOND * 3);
    assert_eq!(f.check(path(2)), CHALLENGED);
}

#[test]
fn what_comes_from_the_challenged_path_moves_the_downlink_and_ends_the_challenge() {
    let mut f = proven();
    let _ = f.check(path(2));
    f.agent.select(f.now, path(2));
    assert_eq!(f.agent.selected(), Some(path(2)));
    assert_eq!(f.agent.duplicate(f.now, 10), None);
    assert_eq!(f.check(path(2)), ANSWERED);
}

/// A client whose packets take two ways at once, or an echo of them from elsewhere.
#[test]
fn the_downlink_moves_once_a_second() {
    let mut f = proven();
    let _ = f.check(path(2));
    f.agent.select(f.now, path(2));
    f.agent.select(f.now, path(1));
    assert_eq!(f.agent.selected(), Some(path(2)));
    f.at(MOVE_INTERVAL - Duration::from_nanos(1));
    f.agent.select(f.now, path(1));
    assert_eq!(f.agent.selected(), Some(path(2)));
    f.at(MOVE_INTERVAL);
    f.agent.select(f.now, path(1));
    assert_eq!(f.agent.selected(), Some(path(1)));
}

/// Aggressive nomination names every path.
#[test]
fn aggressive_nomination_moves_nothing_by_itself() {
    let mut f = proven();
    for second in 1..20 {
        f.at(SECOND * second);
        for port in 1..4 {
            let _ = f.nominate(path(port));
        }
        assert_eq!(f.agent.selected(), Some(path(1)));
    }
}

#[test]
fn replays_from_many_addresses_displace_neither_the_client_nor_its_downlink() {
    let mut f = proven();
    for port in 100..1100 {
        let _ = f.nominate(path(port));
    }
    assert_eq!(f.agent.selected(), Some(path(1)));
    assert!(f.agent.is_checked(path(1), f.now));
    let _ = f.agent.duplicate(f.now, 10);
    f.agent.select(f.now, path(1));
    assert_eq!(f.agent.selected(), Some(path(1)));
}

/// A pair of ours after the first, and a check that uses it.
fn fresh(number: u32) -> (Credentials, Vec<u8>) {
    let credentials =
        Credentials { ufrag: format!("fresh{number}"), password: format!("another password {number:05}").into() };
    let username = format!("{}:cli", credentials.ufrag);
    let check = Request::empty().with(USERNAME, username.as_bytes());
    let check = check.integrity(credentials.password.expose()).fingerprint().bytes();
    (credentials, check)
}

#[test]
fn after_an_ice_restart_both_pairs_are_valid_until_the_new_one_was_used_for_a_while() {
    let mut f = proven();
    let (credentials, check) = fresh(1);
    assert_eq!(f.send(path(2), &check), Err(Discard::StunIntegrity));
    f.agent.restart(&credentials);
    f.at(SECOND * 5);
    assert_eq!(f.check(path(1)), ANSWERED);
    f.at(SECOND * 6);
    assert_eq!(f.send(path(2), &check), Ok(CHALLENGED));
    assert_eq!(f.agent.poll_timeout(), Some(f.now + GRACE));
    f.at(SECOND * 6 + GRACE - Duration::from_nanos(1));
    assert_eq!(f.due(), []);
    assert_eq!(f.check(path(1)), ANSWERED);
    f.at(SECOND * 6 + GRACE);
    assert_eq!(f.due(), []);
    assert_eq!(f.send(path(1), &Request::browser().sealed()), Err(Discard::StunIntegrity));
    assert_eq!(f.send(path(2), &check), Ok(CHALLENGED));
    assert_eq!(f.agent.selected(), Some(path(1)), "until something fresh comes from elsewhere");
}

/// Answers get lost, and pages ask again: the pair that the client is known to have stays.
#[test]
fn of_many_restarts_the_used_pair_and_the_newest_stay() {
    let mut f = proven();
    for number in 0..50 {
        f.agent.restart(&fresh(number).0);
        assert_eq!(f.check(path(1)), ANSWERED);
    }
    assert_eq!(f.send(path(1), &fresh(3).1), Err(Discard::StunIntegrity));
    assert_eq!(f.send(path(1), &fresh(48).1), Ok(ANSWERED), "used in place of the last one's");
    assert_eq!(f.send(path(1), &fresh(49).1), Ok(ANSWERED));
    f.at(GRACE);
    assert_eq!(f.due(), []);
    assert_eq!(f.send(path(1), &fresh(48).1), Err(Discard::StunIntegrity));
    assert_eq!(f.send(path(1), &fresh(49).1), Ok(ANSWERED));
}

/// The answer with the third pair is lost, and the client goes back to the second, which its answer to the first restart had.
#[test]
fn a_client_may_go_back_to_any_pair_behind_the_last_one_that_it_used() {
    let mut f = proven();
    f.agent.restart(&fresh(1).0);
    let _ = f.send(path(1), &fresh(1).1).unwrap();
    f.agent.restart(&fresh(2).0);
    f.agent.restart(&fresh(3).0);
    for number in 1..=3 {
        assert!(f.send(path(1), &fresh(number).1).is_ok(), "pair {number}");
    }
    assert_eq!(f.send(path(1), &Request::browser().sealed()), Err(Discard::StunIntegrity), "the one before is over");
}

#[test]
fn a_pair_is_not_crossed_with_the_password_of_another() {
    let mut f = proven();
    let (credentials, _) = fresh(1);
    f.agent.restart(&credentials);
    let crossed = Request::empty().with(USERNAME, b"fresh1:cli").sealed();
    assert_eq!(f.send(path(1), &crossed), Err(Discard::StunIntegrity));
}
