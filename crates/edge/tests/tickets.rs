//! Facts about instant calls: a client whose first check brings its call, against worker cores in virtual time.
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{CLIENT, Client, EDGE, Rig};
use edge::renew::{Ask, Change, Changed};
use edge::signaling::{CreateCall, Created, IssueTicket, Issued, Shown, create_call, issue_ticket};
use edge::tickets::Refusal;
use edge::worker::{CloseCause, Discard, Output};
use link::ids::{EdgeId, SessionId, TransceiverId};
use rand::SeedableRng;
use rand::rngs::StdRng;
use rtc::{Candidate, ClientFacts, Fragment, LocalDescription, Offer, Path, SctpInit};
use str0m::change::{SdpAnswer, SdpOffer};

fn ticket(rig: &Rig, seed: u64, model: &str, session: Option<&str>) -> Issued {
    let asked = IssueTicket {
        model: Some(model),
        session_json: session,
        source: Some("192.0.2.9".parse().unwrap()),
        grant: None,
    };
    issue_ticket(&rig.shared, rig.unix(), &mut StdRng::seed_from_u64(seed), asked).unwrap()
}

/// What a page makes of its offer and its ticket: the answer, and the ufrag in it.
fn answer(issued: &Issued, offer: &str, dcid: Option<u16>, tamper: impl Fn(&mut ClientFacts)) -> (String, String) {
    let offer = Offer::parse(offer).unwrap();
    let mut facts = ClientFacts::of(&offer, dcid).unwrap();
    tamper(&mut facts);
    let ufrag = format!("{}{}", issued.ufrag, facts.write());
    let init = STANDARD.decode(&issued.sctp_init).unwrap();
    let be32 = |at: usize| u32::from_be_bytes(init[at..at + 4].try_into().unwrap());
    let local = LocalDescription {
        ufrag: ufrag.clone(),
        password: issued.pwd.clone(),
        fingerprint: issued.fingerprint.strip_prefix("sha-256 ").unwrap().to_owned(),
        candidates: vec![Candidate::udp(EDGE.parse().unwrap())],
        session: u64::from_str_radix(&issued.cname, 16).unwrap(),
        ssrc: issued.ssrc,
        sctp_init: SctpInit::Given { tag: be32(4), tsn: be32(16) },
        uplink: rtc::Uplink::default(),
    };
    let answer = offer.accept(&local).answer;
    assert!(answer.contains(&format!("a={}\r\n", issued.candidates[0])) && answer.contains(&issued.sdp_session));
    (answer, ufrag)
}

/// The click: no signaling.
fn click(rig: &mut Rig, issued: &Issued) -> String {
    let (text, ufrag) = answer(issued, &rig.client.offer(), None, |_| ());
    rig.client.accept(&text);
    ufrag
}

fn post(rig: &Rig, offer: &str, ufrag: &str, pwd: &str) -> Result<Created, edge::signaling::ApiError> {
    let call = CreateCall { offer, ticket: Some(Shown { ufrag, pwd }), ..CreateCall::default() };
    create_call(&rig.shared, rig.now, rig.unix(), &mut StdRng::seed_from_u64(9), call)
}

fn connect(rig: &mut Rig) {
    rig.run_until("connected and channel open", Duration::from_secs(5), |rig| {
        rig.client.connected && rig.client.channel.is_some()
    });
    rig.run_for(Duration::from_millis(50));
}

fn id(issued: &Issued) -> SessionId {
    issued.session_id.parse().unwrap()
}

fn count(rig: &Rig, counter: impl Fn(&edge::tickets::Tickets) -> &AtomicU64) -> u64 {
    counter(rig.shared.directory.tickets().unwrap()).load(Ordering::Relaxed)
}

fn discarded(rig: &Rig, discard: Discard) -> u64 {
    rig.workers.iter().map(|worker| worker.stats().discarded(discard)).sum()
}

/// Nothing is left of any call.
fn assert_nothing(rig: &Rig) {
    let gauges: usize = rig.workers.iter().map(|worker| worker.gauges().sessions + worker.gauges().paths).sum();
    let directory = &rig.shared.directory;
    assert_eq!((gauges, directory.sessions(), directory.pending(), rig.shared.seats.used()), (0, 0, 0, 0));
}

/// The client's first datagram: a check.
fn first_check(rig: &mut Rig) -> Vec<u8> {
    rig.client.tick(rig.now);
    rig.client.drain(rig.now);
    rig.client.outbox.front().expect("a check").1.clone()
}

fn inject(rig: &mut Rig, datagram: &[u8], from: &str) {
    let (now, unix) = (rig.now, rig.unix());
    let path = Path::udp(EDGE.parse().unwrap(), from.parse().unwrap());
    rig.workers[0].handle_datagram(now, unix, path, &mut datagram.to_vec());
    rig.run_for(Duration::from_millis(5));
}

#[test]
fn the_first_check_brings_the_call() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    assert_nothing(&rig);
    click(&mut rig, &issued);
    connect(&mut rig);
    assert!(rig.client.messages[0].contains("session.created"));
    assert_eq!((rig.shared.directory.sessions(), rig.shared.seats.used()), (1, 1));
    assert!(rig.shared.directory.get(id(&issued)).is_some());
    assert_eq!((count(&rig, |t| &t.issued), count(&rig, |t| &t.by_check)), (1, 1));
    for number in 0..20 {
        rig.client.speak(rig.now, &[number; 60]);
        rig.run_for(Duration::from_millis(20));
    }
    assert!(rig.client.heard.len() > 15, "{}", rig.client.heard.len());
}

#[test]
fn snap_and_a_negotiated_channel_need_no_further_round_trip() {
    let mut rig = Rig::new(1);
    rig.client = Client::with(rig.now, CLIENT.parse().unwrap(), true, Some(100));
    let issued = ticket(&rig, 1, "echo", None);
    let (text, _) = answer(&issued, &rig.client.offer(), Some(100), |_| ());
    assert!(text.contains(&format!("a=sctp-init:{}\r\n", issued.sctp_init)));
    rig.client.accept(&text);
    rig.run_until("the server's first message", Duration::from_secs(2), |rig| !rig.client.messages.is_empty());
    assert!(rig.client.messages[0].contains("session.created"));
    rig.run_for(Duration::from_millis(50));
    rig.client.say("hello");
    rig.run_for(Duration::from_millis(50));
    assert_eq!(rig.client.messages[1], "hello", "both directions count from the INITs' TSNs");
    assert_eq!((discarded(&rig, Discard::Rtc(rtc::Discard::Sctp)), rig.workers[0].stats().snap), (0, 1));
}

#[test]
fn a_page_may_leave_offered_red_out_of_its_answer_and_put_none_in_that_was_not_offered() {
    let rig = Rig::new(1);
    let offer = include_str!("../../rtc/tests/sdp/offers/chromium.sdp");
    for (seed, with_red) in [(1, true), (2, false)] {
        let issued = ticket(&rig, seed, "echo", None);
        assert_eq!((issued.red, &*issued.opus_parameters), ("prefer", "minptime=10;stereo=0;useinbandfec=1"));
        let choose = |facts: &mut ClientFacts| *facts = if with_red { *facts } else { facts.without_red() };
        let (_, ufrag) = answer(&issued, offer, None, choose);
        let created = post(&rig, offer, &ufrag, issued.pwd.expose()).unwrap();
        assert_eq!(created.answer.contains("red/48000"), with_red, "{}", created.answer);
    }
    let issued = ticket(&rig, 3, "echo", None);
    let (_, ufrag) = answer(&issued, offer, None, |_| ());
    let bare = offer.replace("a=fmtp:63 111/111", "a=fmtp:63 1/1");
    assert_ne!(bare, offer);
    let refused = post(&rig, &bare, &ufrag, issued.pwd.expose()).unwrap_err();
    assert_eq!(refused.code, "ticket_offer");
}

#[test]
fn a_ticket_makes_one_call() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    click(&mut rig, &issued);
    let check = first_check(&mut rig);
    connect(&mut rig);
    assert!(rig.shared.directory.close(id(&issued), CloseCause::HangUp));
    let command = rig.shared.directory.mailbox(0).unwrap().take_command().unwrap();
    rig.workers[0].handle_command(rig.now, command);
    rig.run_for(Duration::from_secs(1));
    assert_nothing(&rig);
    let before = discarded(&rig, Discard::Ticket(Refusal::Used));
    inject(&mut rig, &check, "198.51.100.9:1");
    assert_eq!(discarded(&rig, Discard::Ticket(Refusal::Used)), before + 1);
    assert_nothing(&rig);
    // A POST fares no better.
    let refused = post(&rig, &rig.client.offer(), &issued.ufrag, issued.pwd.expose()).unwrap_err();
    assert_eq!((refused.status.as_u16(), refused.code), (409, "ticket_used"));
    assert_nothing(&rig);
}

#[test]
fn a_stale_ticket_makes_none() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    rig.now += Duration::from_secs(60);
    rig.client = Client::new(rig.now, CLIENT.parse().unwrap());
    click(&mut rig, &issued);
    rig.run_for(Duration::from_secs(2));
    assert!(discarded(&rig, Discard::Ticket(Refusal::Expired)) > 0 && !rig.client.connected);
    let refused = post(&rig, &rig.client.offer(), &issued.ufrag, issued.pwd.expose()).unwrap_err();
    assert_eq!((refused.status.as_u16(), refused.code), (410, "ticket_expired"));
    assert_nothing(&rig);
    assert_eq!(rig.shared.directory.tickets().unwrap().held(), (0, 0));
}

#[test]
fn a_forged_ticket_and_a_wrong_password_leave_nothing() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    let forged = Issued { ufrag: issued.ufrag.replacen(&issued.ufrag[9..10], "+", 1), ..issued.clone() };
    click(&mut rig, &forged);
    rig.run_for(Duration::from_secs(1));
    assert!(discarded(&rig, Discard::ForgedRoute) > 0);
    rig.client = Client::new(rig.now, CLIENT.parse().unwrap());
    click(&mut rig, &Issued { pwd: "0123456789abcdefghijklmn".into(), ..issued.clone() });
    rig.run_for(Duration::from_secs(1));
    assert!(discarded(&rig, Discard::Rtc(rtc::Discard::StunIntegrity)) > 0);
    for (ufrag, pwd) in [(&*forged.ufrag, issued.pwd.expose()), (&*issued.ufrag, &*"x".repeat(24)), ("", "")] {
        assert_eq!(post(&rig, &rig.client.offer(), ufrag, pwd).unwrap_err().code, "ticket_invalid");
    }
    assert_nothing(&rig);
    assert_eq!(rig.shared.directory.tickets().unwrap().held().0, 0, "the ticket is still good");
}

#[test]
fn another_certificate_than_the_one_told_ends_the_call() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    let (text, _) = answer(&issued, &rig.client.offer(), None, |facts| facts.fingerprint[0] ^= 1);
    rig.client.accept(&text);
    rig.run_for(Duration::from_secs(3));
    let mismatch = CloseCause::Client(rtc::CloseReason::FingerprintMismatch);
    let at = CloseCause::ALL.iter().position(|cause| *cause == mismatch).unwrap();
    assert_eq!(rig.workers[0].stats().closed[at], 1);
    assert_nothing(&rig);
}

#[test]
fn facts_that_make_no_sense_leave_the_ticket_unused() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    let (text, ufrag) = answer(&issued, &rig.client.offer(), None, |_| ());
    rig.client.accept(&text.replace(&ufrag, &issued.ufrag));
    rig.run_for(Duration::from_secs(1));
    assert!(discarded(&rig, Discard::Ticket(Refusal::Facts)) > 0);
    assert_nothing(&rig);
    rig.client = Client::new(rig.now, CLIENT.parse().unwrap());
    click(&mut rig, &issued);
    connect(&mut rig);
}

#[test]
fn the_post_of_the_same_offer_finds_the_call_that_a_check_made() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    let ufrag = click(&mut rig, &issued);
    connect(&mut rig);
    for _ in 0..2 {
        let posted = post(&rig, &rig.client.offer(), &ufrag, issued.pwd.expose()).unwrap();
        assert!(posted.standing && posted.id == id(&issued) && posted.answer.contains(&ufrag));
    }
    assert_eq!((rig.shared.seats.used(), rig.shared.directory.sessions()), (1, 1));
    assert_eq!((count(&rig, |t| &t.by_check), count(&rig, |t| &t.standing)), (1, 2));
}

#[test]
fn a_post_that_comes_late_or_at_the_edges_end_finds_the_call_that_a_check_made() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    let ufrag = click(&mut rig, &issued);
    connect(&mut rig);
    rig.run_for(Duration::from_secs(61));
    assert!(post(&rig, &rig.client.offer(), &ufrag, issued.pwd.expose()).unwrap().standing, "the ticket has expired");
    let unused = ticket(&rig, 2, "echo", None);
    rig.shared.draining.store(true, Ordering::Relaxed);
    rig.shared.directory.tickets().unwrap().close();
    assert!(post(&rig, &rig.client.offer(), &ufrag, issued.pwd.expose()).unwrap().standing, "the edge stops");
    assert_eq!(
        post(&rig, &rig.client.offer(), &unused.ufrag, unused.pwd.expose()).unwrap_err().code,
        "ticket_draining"
    );
    assert_eq!((rig.shared.seats.used(), rig.shared.directory.sessions()), (1, 1));
}

#[test]
fn a_post_that_says_other_than_the_ufrag_leaves_the_ticket_unused() {
    let mut rig = Rig::new(1);
    rig.client = Client::with(rig.now, CLIENT.parse().unwrap(), true, Some(100));
    let offer = rig.client.offer();
    let tampers: [fn(&mut ClientFacts); 4] = [
        |facts| facts.snap = None,
        |facts| facts.sped = !facts.sped,
        |facts| facts.audio = None,
        |facts| facts.fingerprint[0] ^= 1,
    ];
    let issued = ticket(&rig, 1, "echo", None);
    for tamper in tampers {
        let (_, ufrag) = answer(&issued, &offer, Some(100), tamper);
        assert_eq!(post(&rig, &offer, &ufrag, issued.pwd.expose()).unwrap_err().code, "ticket_offer");
    }
    assert_eq!(
        post(&rig, &offer, &format!("{}x", issued.ufrag), issued.pwd.expose()).unwrap_err().code,
        "ticket_offer"
    );
    assert_nothing(&rig);
    // The stream of the channel is told in the ufrag, so the query needs not say it.
    let (_, ufrag) = answer(&issued, &offer, Some(100), |_| ());
    post(&rig, &offer, &ufrag, issued.pwd.expose()).unwrap();
    let entry = rig.shared.directory.get(id(&issued)).unwrap();
    let made = rig.shared.directory.claim(&entry, 0).unwrap();
    let sctp = made.setup.sctp.as_ref().unwrap();
    assert_eq!((sctp.negotiated[0].id, sctp.snap.is_some(), made.setup.remote_password.is_none()), (100, true, true));
}

#[test]
fn a_check_finds_the_call_that_the_post_made() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    let offer = rig.client.offer();
    let ufrag = click(&mut rig, &issued);
    let posted = post(&rig, &offer, &ufrag, issued.pwd.expose()).unwrap();
    assert!(!posted.standing);
    assert!(post(&rig, &offer, &ufrag, issued.pwd.expose()).unwrap().standing, "posted again");
    assert_eq!(rig.shared.seats.used(), 1);
    connect(&mut rig);
    assert_eq!((count(&rig, |t| &t.by_check), count(&rig, |t| &t.by_post)), (0, 1));
    assert_eq!(rig.shared.seats.used(), 1);
}

#[test]
fn a_post_whose_client_never_checks_gives_its_seat_back() {
    let rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    post(&rig, &rig.client.offer(), &issued.ufrag, issued.pwd.expose()).unwrap();
    assert_eq!(rig.shared.seats.used(), 1);
    rig.shared.directory.expire(rig.now + Duration::from_secs(31));
    assert_nothing(&rig);
}

#[test]
fn two_workers_make_one_call_of_a_ticket() {
    let mut rig = Rig::new(2);
    let issued = ticket(&rig, 1, "echo", None);
    click(&mut rig, &issued);
    let check = first_check(&mut rig);
    let (now, unix) = (rig.now, rig.unix());
    rig.workers[1].handle_datagram(
        now,
        unix,
        Path::udp(EDGE.parse().unwrap(), CLIENT.parse().unwrap()),
        &mut check.clone(),
    );
    connect(&mut rig);
    assert_eq!((rig.shared.directory.sessions(), rig.shared.seats.used()), (1, 1));
    assert!(!rig.handed_over.is_empty(), "what came to the other worker");
    assert_eq!(rig.workers[1].gauges().sessions, 1);
}

#[test]
fn the_transceiver_of_the_ticket_is_told_what_it_needs() {
    let mut rig = Rig::new(1);
    rig.lease(&[1, 2]);
    let session = r#"{"instructions":"be brief"}"#;
    let issued = ticket(&rig, 1, "parrot", Some(session));
    assert!(rig.shared.directory.tickets().unwrap().held().1 > session.len());
    click(&mut rig, &issued);
    rig.run_for(Duration::from_millis(100));
    let opens = rig.outputs.iter().filter_map(|output| match output {
        Output::Open { transceiver, request } => Some((*transceiver, request.clone())),
        _ => None,
    });
    let (transceiver, request) = opens.clone().next().unwrap();
    assert_eq!((opens.count(), transceiver), (1, TransceiverId(1)));
    assert_eq!((request.session, request.model.as_str()), (id(&issued).0, "parrot"));
    assert_eq!((request.session_config.as_str(), request.ticket_expires), (session, rig.unix() + 60));
    assert_eq!(rig.shared.directory.tickets().unwrap().held(), (1, 0), "the config went with it");
}

#[test]
fn without_a_seat_at_its_transceiver_a_ticket_waits() {
    let mut rig = Rig::new(1);
    rig.lease(&[1]);
    let issued = ticket(&rig, 1, "parrot", None);
    rig.shared.seats.grant(TransceiverId(1), 0, false);
    click(&mut rig, &issued);
    rig.run_for(Duration::from_secs(1));
    assert!(discarded(&rig, Discard::Ticket(Refusal::NoSeat)) > 0);
    assert_nothing(&rig);
    rig.shared.seats.grant(TransceiverId(1), 1, false);
    rig.run_for(Duration::from_secs(3));
    assert_eq!(rig.shared.directory.sessions(), 1, "the checks go on");
}

#[test]
fn a_call_by_ticket_ends_at_its_limit() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    click(&mut rig, &issued);
    connect(&mut rig);
    rig.run_for(Duration::from_secs(598));
    assert_eq!(rig.shared.directory.sessions(), 1);
    rig.run_for(Duration::from_secs(4));
    assert!(rig.client.messages.last().unwrap().contains("session_expired"), "{:?}", rig.client.messages);
    assert_nothing(&rig);
}

/// The token can be seen on the wire; the password that belongs to it cannot.
#[test]
fn nothing_that_holds_a_password_shows_it() {
    let rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    let offer = rig.client.offer();
    let (own, theirs) = (issued.pwd.expose(), "a-password-of-24-letters");
    assert!(offer.contains(theirs) && serde_json::to_string(&issued).unwrap().contains(own), "the page is told");
    let (answer, ufrag) = answer(&issued, &offer, None, |_| ());
    assert!(answer.contains(own));
    let ticket = Shown { ufrag: &ufrag, pwd: own };
    let call = CreateCall { offer: &offer, ticket: Some(ticket), ..CreateCall::default() };
    let change = Change::Offer(Box::new(Offer::parse(&offer).unwrap()));
    let fragment = Fragment::parse(&format!("a=ice-ufrag:cli7\r\na=ice-pwd:{theirs}\r\n")).unwrap();
    let (reply, _) = tokio::sync::oneshot::channel();
    let ask = Ask { session: id(&issued), change: Change::Fragment(fragment, None), candidates: vec![], reply };
    let changed = Changed { answer: Some(answer.clone()), restarted: true, ice_session: 2 };
    let created = Created { id: id(&issued), answer, standing: false };
    let shown = [
        format!("{issued:?}"),
        format!("{ticket:?}"),
        format!("{call:?}"),
        format!("{change:?}"),
        format!("{ask:?}"),
        format!("{changed:?}"),
        format!("{created:#?}"),
    ];
    for text in shown {
        assert!(!text.contains(own) && !text.contains(theirs), "{text}");
    }
    post(&rig, &offer, &ufrag, own).unwrap();
    let entry = rig.shared.directory.get(id(&issued)).unwrap();
    let pending = format!("{:?}", rig.shared.directory.claim(&entry, 0).unwrap());
    assert!(pending.contains("local_password: [redacted]") && !pending.contains(own), "{pending}");
}

/// A restarted edge has forgotten which tickets were used, and nobody else knows of those for its own calls.
#[test]
fn a_restarted_edge_takes_no_ticket_for_its_own_calls_of_the_run_before() {
    let mut rig = Rig::new(1);
    let issued = ticket(&rig, 1, "echo", None);
    let ufrag = click(&mut rig, &issued);
    let check = first_check(&mut rig);
    connect(&mut rig);
    let (keys, offer) = (rig.shared.keys.current(), rig.client.offer());

    let again = |run| {
        let mut rig = Rig::of_run(1, keys.clone(), run);
        let (now, unix) = (rig.now, rig.unix());
        let path = Path::udp(EDGE.parse().unwrap(), CLIENT.parse().unwrap());
        rig.workers[0].handle_datagram(now, unix, path, &mut check.clone());
        rig
    };
    let rig = again(2);
    assert_eq!(discarded(&rig, Discard::Ticket(Refusal::Restarted)), 1);
    let refused = post(&rig, &offer, &ufrag, issued.pwd.expose()).unwrap_err();
    assert_eq!((refused.status.as_u16(), refused.code), (409, "ticket_restarted"));
    assert_nothing(&rig);
    assert_eq!(again(1).shared.directory.sessions(), 1, "the same check would make a call in the run that issued it");
}

/// Tickets for transceivers outlive the edge: these know which were used.
#[test]
fn a_restarted_edge_takes_tickets_for_its_transceivers() {
    let rig = Rig::new(1);
    rig.lease(&[1]);
    let issued = ticket(&rig, 1, "parrot", None);
    let mut rig = Rig::of_run(1, rig.shared.keys.current(), 2);
    rig.lease(&[1]);
    click(&mut rig, &issued);
    rig.run_for(Duration::from_millis(100));
    assert_eq!(rig.shared.directory.sessions(), 1);
}

/// The page wrote the first answer itself; that of its later offer comes from the edge.
#[test]
fn a_later_offer_of_a_call_by_ticket_restarts_ice_whether_it_was_claimed_or_not() {
    for claimed in [false, true] {
        let mut rig = Rig::new(1);
        let issued = ticket(&rig, 1, "echo", None);
        let offer = rig.client.offer();
        let ufrag = click(&mut rig, &issued);
        if claimed {
            connect(&mut rig);
        }
        assert_eq!(post(&rig, &offer, &ufrag, issued.pwd.expose()).unwrap().standing, claimed);
        let mut api = rig.client.rtc.sdp_api();
        api.ice_restart(true);
        let (offer, pending) = api.apply().unwrap();
        let change = Change::Offer(Box::new(Offer::parse(&SdpOffer::to_sdp_string(&offer)).unwrap()));
        let (now, unix) = (rig.now, rig.unix());
        let candidates = rig.shared.candidates.clone();
        let changed = if claimed {
            rig.workers[0].handle_change(now, unix, id(&issued), &change, &candidates).unwrap()
        } else {
            let entry = rig.shared.directory.get(id(&issued)).unwrap();
            let dated = (EdgeId(1), id(&issued), unix);
            let keys = rig.shared.keys.current();
            rig.shared.directory.change_pending(&entry, &keys, dated, &change, &candidates).unwrap().unwrap()
        };
        assert!(changed.restarted);
        let answer = changed.answer.unwrap();
        let line = |name| answer.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert_eq!(line("a=fingerprint:"), issued.fingerprint);
        assert!(!line("a=ice-ufrag:").contains(&issued.ufrag) && line("o=").contains(&issued.sdp_session));
        rig.client.rtc.sdp_api().accept_answer(pending, SdpAnswer::from_sdp_string(&answer).unwrap()).unwrap();
        connect(&mut rig);
        rig.run_for(Duration::from_secs(20));
        let before = rig.client.messages.len();
        rig.client.say("by the new pair");
        rig.run_for(Duration::from_millis(100));
        assert_eq!(rig.client.messages.len(), before + 1, "claimed: {claimed}");
        assert_eq!(rig.workers[0].stats().claimed, 1);
        assert_eq!(discarded(&rig, Discard::Rtc(rtc::Discard::StunIntegrity)), 0);
    }
}
