//! What pipecat's SmallWebRTC clients ask for and get at `/api/offer`.

use serde_json::{Value, json};

use super::*;
use crate::auth::{Allowance, ApiKey, Grant};

/// As pipecat's client offers: a microphone, a camera, a screen, and the channel `chat`.
struct Pipecat {
    rtc: str0m::Rtc,
    pending: Option<str0m::change::SdpPendingOffer>,
}

impl Pipecat {
    fn new() -> Self {
        Self { rtc: str0m::RtcConfig::new().build(Instant::now()), pending: None }
    }

    fn offer(&mut self) -> String {
        use str0m::media::{Direction, MediaKind};
        let mut change = self.rtc.sdp_api();
        change.add_media(MediaKind::Audio, Direction::SendRecv, None, None, None);
        change.add_media(MediaKind::Video, Direction::SendRecv, None, None, None);
        change.add_media(MediaKind::Video, Direction::SendOnly, None, None, None);
        change.add_channel("chat".into());
        let (offer, pending) = change.apply().unwrap();
        self.pending = Some(pending);
        offer.to_sdp_string()
    }

    fn restart_ice(&mut self) -> String {
        let mut change = self.rtc.sdp_api();
        change.ice_restart(true);
        let (offer, pending) = change.apply().unwrap();
        self.pending = Some(pending);
        offer.to_sdp_string()
    }

    fn accept(&mut self, answer: &str) {
        let answer = str0m::change::SdpAnswer::from_sdp_string(answer).unwrap();
        self.rtc.sdp_api().accept_answer(self.pending.take().unwrap(), answer).unwrap();
    }
}

/// The body that its client sends.
fn body(sdp: &str, pc_id: Option<&str>, restart_pc: bool) -> Value {
    json!({ "sdp": sdp, "type": "offer", "pc_id": pc_id, "restart_pc": restart_pc })
}

async fn ask(shared: &Arc<Shared>, method: &str, uri: &str, key: &str, body: &Value) -> Answer {
    let mut request = Request::builder().method(method).uri(uri).header("content-type", "application/json");
    if !key.is_empty() {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    send(shared, request.body(body.to_string().into()).unwrap()).await
}

async fn offer(shared: &Arc<Shared>, body: &Value) -> Answer {
    ask(shared, "POST", "/api/offer?model=parrot", "", body).await
}

/// Answer and `pc_id` of a call.
fn taken(answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let body: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(body["type"], "answer");
    (body["sdp"].as_str().unwrap().to_owned(), body["pc_id"].as_str().unwrap().to_owned())
}

fn refusal(answer: &Answer) -> (u16, String, String) {
    let error = answer.error();
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (answer.status.as_u16(), text("code"), text("param"))
}

fn refused(status: u16, code: &str, param: &str) -> (u16, String, String) {
    (status, code.to_owned(), param.to_owned())
}

fn leased() -> Arc<Shared> {
    let shared = shared();
    lease(&shared, 4);
    shared
}

#[tokio::test]
async fn an_offer_is_answered_with_audio_without_video_and_with_an_id() {
    let shared = leased();
    let mut client = Pipecat::new();
    let mut asked = body(&client.offer(), None, false);
    asked["requestData"] = json!({ "user": 7, "session": { "instructions": "Be brief." } });
    let (sdp, pc_id) = taken(&offer(&shared, &asked).await);
    client.accept(&sdp);
    let lines: Vec<&str> = sdp.lines().filter(|line| line.starts_with("m=")).collect();
    let ports: Vec<&str> = lines.iter().map(|line| line.split(' ').nth(1).unwrap()).collect();
    assert_eq!(ports, ["3478", "0", "0", "3478"], "{lines:?}");
    let entry = shared.directory.get(pc_id.parse().unwrap()).unwrap();
    let call = shared.directory.claim(&entry, 0).unwrap().call;
    assert_eq!((call.model.as_str(), call.session_config.as_str()), ("parrot", r#"{"instructions":"Be brief."}"#));
}

#[tokio::test]
async fn a_later_offer_with_its_id_is_the_same_call() {
    let shared = leased();
    let mut client = Pipecat::new();
    let (sdp, pc_id) = taken(&offer(&shared, &body(&client.offer(), None, false)).await);
    client.accept(&sdp);
    let again = offer(&shared, &body(&client.restart_ice(), Some(&pc_id), false)).await;
    let (restarted, same) = taken(&again);
    client.accept(&restarted);
    assert_eq!(same, pc_id);
    assert_ne!(value(&restarted, "a=ice-ufrag:"), value(&sdp, "a=ice-ufrag:"));
    assert_eq!((shared.directory.sessions(), shared.counts.restarted.load(Ordering::Relaxed)), (1, 1));

    let foreign = offer(&shared, &body(&Pipecat::new().offer(), Some(&pc_id), false)).await;
    assert_eq!(refusal(&foreign), refused(422, "offer_changes_call", "sdp"));
    assert_eq!(shared.directory.sessions(), 1, "the call goes on");
}

#[tokio::test]
async fn a_restart_puts_a_call_in_the_place_of_the_former() {
    let shared = leased();
    let (_, former) = taken(&offer(&shared, &body(&Pipecat::new().offer(), None, false)).await);
    let unreadable = offer(&shared, &body("v=0\r\n", Some(&former), true)).await;
    assert_eq!(refusal(&unreadable), refused(400, "invalid_offer", "sdp"));
    assert_eq!(shared.directory.sessions(), 1, "an offer that cannot be read ends nothing");
    let (_, pc_id) = taken(&offer(&shared, &body(&Pipecat::new().offer(), Some(&former), true)).await);
    assert_ne!(pc_id, former);
    assert!(shared.directory.get(former.parse().unwrap()).is_none());
    assert_eq!((shared.directory.sessions(), shared.seats.used()), (1, 1));
}

#[tokio::test]
async fn an_id_that_is_no_call_any_more_is_a_call_anew() {
    let shared = leased();
    for pc_id in ["rtc_0000000000000000", "SmallWebRTCConnection#0-abc", ""] {
        for restart in [false, true] {
            let (_, made) = taken(&offer(&shared, &body(&Pipecat::new().offer(), Some(pc_id), restart)).await);
            assert_ne!(made, pc_id);
            assert!(shared.directory.close(made.parse().unwrap(), crate::worker::CloseCause::HangUp));
        }
    }
}

#[tokio::test]
async fn its_id_ends_the_call_like_any_other() {
    let shared = leased();
    let (_, pc_id) = taken(&offer(&shared, &body(&Pipecat::new().offer(), None, false)).await);
    let call = format!("/v1/realtime/calls/{pc_id}");
    assert_eq!(request(&shared, "DELETE", &call, "", "").await.status, StatusCode::OK);
    assert_eq!(shared.seats.used(), 0);
}

#[tokio::test]
async fn candidates_are_taken_for_calls_alone() {
    let shared = leased();
    let (_, pc_id) = taken(&offer(&shared, &body(&Pipecat::new().offer(), None, false)).await);
    let patch = async |pc_id: &str, candidates: Value| {
        let body = json!({ "pc_id": pc_id, "candidates": candidates });
        ask(&shared, "PATCH", "/api/offer", "", &body).await
    };
    let named = "candidate:1 1 udp 2122260223 0b1c.local 61764 typ host generation 0 ufrag ysXw";
    let of = |candidate: &str| json!([{ "candidate": candidate, "sdp_mid": "0", "sdp_mline_index": 0 }]);
    for candidates in [of(named), of(""), json!([{ "candidate": named, "sdp_mid": null }]), json!([])] {
        let taken = patch(&pc_id, candidates.clone()).await;
        assert_eq!((taken.status, taken.body.as_str()), (StatusCode::OK, r#"{"status":"success"}"#), "{candidates}");
    }
    for candidate in ["x", "candidate:1", "candidate:1 1 udp 1 a 1 typ host\r\na=ice-ufrag:abcd"] {
        assert_eq!(refusal(&patch(&pc_id, of(candidate)).await), refused(400, "invalid_candidate", "candidates"));
    }
    for other in ["rtc_0000000000000000", "nobody"] {
        assert_eq!(refusal(&patch(other, of(named)).await), refused(404, "call_id_not_found", ""), "{other}");
    }
    assert_eq!(shared.directory.sessions(), 1);
}

#[tokio::test]
async fn what_cannot_be_read_names_the_part() {
    let shared = leased();
    let sdp = Pipecat::new().offer();
    let with = |name: &str, value: Value| {
        let mut asked = body(&sdp, None, false);
        asked[name] = value;
        asked
    };
    let long = "x".repeat(300 << 10);
    for (asked, expected) in [
        (json!({ "type": "offer" }), refused(400, "invalid_json", "body")),
        (json!([]), refused(400, "invalid_json", "body")),
        (with("type", "answer".into()), refused(400, "invalid_value", "type")),
        (with("sdp", "".into()), refused(400, "invalid_offer", "sdp")),
        (with("sdp", "x".repeat(MAX_OFFER_BYTES + 1).into()), refused(413, "payload_too_large", "")),
        (with("requestData", json!({ "session": { "instructions": long } })), refused(413, "payload_too_large", "")),
        (with("request_data", json!({ "session": [] })), refused(400, "invalid_json", "session")),
        (with("request_data", json!({ "session": { "model": 7 } })), refused(400, "invalid_type", "session.model")),
    ] {
        assert_eq!(refusal(&offer(&shared, &asked).await), expected);
    }
    assert_eq!(shared.counts.refused.load(Ordering::Relaxed), 8);
    let typed = request(&shared, "POST", "/api/offer", "application/sdp", sdp).await;
    assert_eq!(refusal(&typed), refused(415, "unsupported_media_type", ""));
    assert_eq!(request(&shared, "GET", "/api/offer", "", "").await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!((shared.directory.sessions(), shared.seats.used()), (0, 0));
}

#[tokio::test]
async fn options_say_that_json_is_taken() {
    let answer = request(&shared(), "OPTIONS", "/api/offer", "", "").await;
    let said = (answer.header("accept-post"), answer.header("accept-patch"));
    assert_eq!((answer.status, said), (StatusCode::OK, ("application/json", "application/json")));
}

fn guarded(allowance: Allowance) -> Arc<Shared> {
    let keys = vec![
        ApiKey::of_text("app", Grant::new(1, "key:app", allowance)),
        ApiKey::of_text("other", Grant::new(2, "key:other", Allowance::default())),
    ];
    let shared = Shared { auth: Auth::new(false, keys, None), ..Arc::into_inner(shared()).unwrap() };
    lease(&shared, 4);
    Arc::new(shared)
}

#[tokio::test]
async fn a_key_is_needed_and_a_call_is_its_tenants_alone() {
    let shared = guarded(Allowance::default());
    let asked = body(&Pipecat::new().offer(), None, false);
    for key in ["", "wrong"] {
        let answer = ask(&shared, "POST", "/api/offer", key, &asked).await;
        assert_eq!(refusal(&answer), refused(401, "invalid_api_key", ""));
    }
    let (_, pc_id) = taken(&ask(&shared, "POST", "/api/offer", "app", &asked).await);
    let trickled = json!({ "pc_id": pc_id, "candidates": [] });
    let patch = async |key| ask(&shared, "PATCH", "/api/offer", key, &trickled).await.status;
    let answers = (patch("app").await, patch("other").await, patch("").await);
    assert_eq!(answers, (StatusCode::OK, StatusCode::NOT_FOUND, StatusCode::UNAUTHORIZED));
    let restart = body(&Pipecat::new().offer(), Some(&pc_id), true);
    let (_, foreign) = taken(&ask(&shared, "POST", "/api/offer", "other", &restart).await);
    assert_ne!(foreign, pc_id);
    assert_eq!(shared.directory.sessions(), 2, "nothing of another tenant's ends");
}

#[tokio::test]
async fn a_restart_keeps_the_place_among_the_calls_of_its_key() {
    let shared = guarded(Allowance { max_concurrent: 1, ..Allowance::default() });
    let asked = |pc_id: Option<&str>, restart| body(&Pipecat::new().offer(), pc_id, restart);
    let (_, pc_id) = taken(&ask(&shared, "POST", "/api/offer", "app", &asked(None, false)).await);
    // A worker has the call, and takes a moment to end it.
    let entry = shared.directory.get(pc_id.parse().unwrap()).unwrap();
    let claimed = shared.directory.claim(&entry, 0).unwrap();
    let second = ask(&shared, "POST", "/api/offer", "app", &asked(None, false)).await;
    assert_eq!(refusal(&second), refused(429, "too_many_concurrent", ""));
    let (_, restarted) = taken(&ask(&shared, "POST", "/api/offer", "app", &asked(Some(&pc_id), true)).await);
    // Whoever restarts it once more meanwhile pays for a place of its own.
    let twice = ask(&shared, "POST", "/api/offer", "app", &asked(Some(&pc_id), true)).await;
    assert_eq!(refusal(&twice), refused(429, "too_many_concurrent", ""));
    drop(claimed);
    let second = ask(&shared, "POST", "/api/offer", "app", &asked(None, false)).await;
    assert_eq!(refusal(&second), refused(429, "too_many_concurrent", ""), "one call is one place");
    assert_eq!(hang_up(&shared, &restarted).await, StatusCode::OK);
    taken(&ask(&shared, "POST", "/api/offer", "app", &asked(None, false)).await);
}

async fn hang_up(shared: &Arc<Shared>, pc_id: &str) -> StatusCode {
    ask(shared, "DELETE", &format!("/v1/realtime/calls/{pc_id}"), "app", &Value::Null).await.status
}
