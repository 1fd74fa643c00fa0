//! Facts about the HTTP surface, through the router itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use link::ids::{EdgeId, TransceiverId};
use rand::SeedableRng;
use rand::rngs::StdRng;
use tower::ServiceExt;

use super::{Callers, Counts, CreateCall, MAX_OFFER_BYTES, Shared, create_call, router};
use crate::auth::Auth;
use crate::directory::Directory;
use crate::keys::{Keyring, PopKeys};
use crate::seats::Seats;
use crate::waiting::Waiting;
use crate::websocket::WebSockets;

fn shared() -> Arc<Shared> {
    let models = [("echo", "echo"), ("parrot", "parrot"), ("gpt-realtime", "parrot")];
    let shared = Shared {
        edge: EdgeId(1),
        candidates: vec![rtc::Candidate::udp("192.0.2.1:3478".parse().unwrap())],
        ice_servers: super::IceServers::default(),
        models: BTreeMap::from(models.map(|(name, model)| (name.to_owned(), model.to_owned()))),
        default_model: "echo".to_owned(),
        setup_timeout: Duration::from_secs(30),
        uplink: rtc::Uplink::default(),
        keys: Keyring::new(PopKeys::single(&[1; 32], rtc::Identity::generate())),
        directory: Directory::new(1),
        seats: Seats::new(100),
        waiting: Waiting::new(3),
        websockets: WebSockets::new(4, 4),
        auth: Auth::open(),
        draining: AtomicBool::new(false),
        counts: Counts::default(),
    };
    Arc::new(shared)
}

fn lease(shared: &Shared, seats: u32) {
    shared.seats.hello(TransceiverId(1), vec!["parrot".to_owned()]);
    shared.seats.grant(TransceiverId(1), seats, false);
}

fn offer() -> String {
    let mut rtc = str0m::RtcConfig::new().build(Instant::now());
    let mut change = rtc.sdp_api();
    change.add_media(str0m::media::MediaKind::Audio, str0m::media::Direction::SendRecv, None, None, None);
    change.add_channel("oai-events".into());
    change.apply().unwrap().0.to_sdp_string()
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Answer {
    fn error(&self) -> serde_json::Value {
        let body: serde_json::Value = serde_json::from_str(&self.body).expect(&self.body);
        body["error"].clone()
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

async fn send(shared: &Arc<Shared>, request: Request<Body>) -> Answer {
    let response = router(Arc::clone(shared)).oneshot(request).await.unwrap();
    let (head, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    Answer { status: head.status, headers: head.headers, body: String::from_utf8(body.to_vec()).unwrap() }
}

async fn request(shared: &Arc<Shared>, method: &str, uri: &str, kind: &str, body: impl Into<Body>) -> Answer {
    let mut request = Request::builder().method(method).uri(uri).header("origin", "https://app.example");
    if !kind.is_empty() {
        request = request.header("content-type", kind);
    }
    send(shared, request.body(body.into()).unwrap()).await
}

async fn post(shared: &Arc<Shared>, kind: &str, body: impl Into<Body>) -> Answer {
    request(shared, "POST", "/v1/realtime/calls", kind, body).await
}

fn form(parts: &[(&str, &str, &str)]) -> (String, String) {
    let mut body = String::new();
    for (name, kind, value) in parts {
        body += &format!("--limit\r\nContent-Disposition: form-data; name=\"{name}\"\r\n");
        if !kind.is_empty() {
            body += &format!("Content-Type: {kind}\r\n");
        }
        body += &format!("\r\n{value}\r\n");
    }
    ("multipart/form-data; boundary=limit".to_owned(), body + "--limit--\r\n")
}

#[tokio::test]
async fn an_offer_is_answered_with_201_answer_and_location() {
    let shared = shared();
    let answer = post(&shared, "application/sdp", offer()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    assert_eq!(answer.header("content-type"), "application/sdp");
    assert!(answer.body.starts_with("v=0\r\n") && answer.body.ends_with("\r\n"));
    assert!(answer.body.contains("192.0.2.1 3478"));
    let id = answer.header("location").strip_prefix("/v1/realtime/calls/rtc_").expect("a location");
    assert!(id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(shared.directory.pending(), 1);
}

#[tokio::test]
async fn the_answers_ufrag_is_a_route_to_this_edge_and_session() {
    let shared = shared();
    let answer = post(&shared, "application/sdp; charset=utf-8", offer()).await;
    let ufrag = answer.body.lines().find_map(|line| line.strip_prefix("a=ice-ufrag:")).unwrap();
    let route = shared.keys.current().route().open(ufrag).expect("a token of ours");
    assert_eq!((route.edge, route.transceiver), (EdgeId(1), TransceiverId(0)));
    assert!(answer.header("location").ends_with(&route.session.to_string()));
    let password = answer.body.lines().find_map(|line| line.strip_prefix("a=ice-pwd:")).unwrap();
    assert_eq!(shared.keys.current().route().password(ufrag).as_deref(), Some(password));
}

#[tokio::test]
async fn a_form_is_read_with_and_without_types_of_its_parts() {
    let shared = shared();
    lease(&shared, 10);
    let session = r#"{"type":"realtime","model":"gpt-realtime"}"#;
    let offer = offer();
    for (sdp_kind, session_kind) in [("application/sdp", "application/json"), ("", "")] {
        let (kind, body) = form(&[("sdp", sdp_kind, &offer), ("session", session_kind, session), ("other", "", "x")]);
        let answer = post(&shared, &kind, body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    }
    let (kind, body) = form(&[("sdp", "", &offer)]);
    assert_eq!(post(&shared, &kind, body).await.status, StatusCode::CREATED);
    let used: Vec<u32> = shared.seats.status().iter().map(|place| place.used).collect();
    assert_eq!(used, [1, 2], "the session's model chooses the place");
}

#[tokio::test]
async fn the_sessions_model_wins_over_the_query_and_others_take_the_default() {
    let shared = shared();
    lease(&shared, 10);
    let used = || shared.seats.status().iter().map(|place| place.used).collect::<Vec<_>>();
    let (kind, body) = form(&[("sdp", "", &offer()), ("session", "", r#"{"model":"echo"}"#)]);
    request(&shared, "POST", "/v1/realtime/calls?model=parrot", &kind, body).await;
    assert_eq!(used(), [1, 0]);
    request(&shared, "POST", "/v1/realtime/calls?model=parrot", "application/sdp", offer()).await;
    assert_eq!(used(), [1, 1]);
    request(&shared, "POST", "/v1/realtime/calls?model=oracle", "application/sdp", offer()).await;
    request(&shared, "POST", "/v1/realtime/calls", "application/sdp", offer()).await;
    assert_eq!(used(), [3, 1]);
    let counts = &shared.counts;
    assert_eq!((counts.model_absent.load(Ordering::Relaxed), counts.model_unmapped.load(Ordering::Relaxed)), (1, 1));
}

#[tokio::test]
async fn a_bad_offer_names_line_attribute_and_fix() {
    let shared = shared();
    let offer = offer();
    let without: String =
        offer.lines().filter(|line| !line.starts_with("a=ice-pwd")).map(|line| format!("{line}\r\n")).collect();
    let answer = post(&shared, "application/sdp", without).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    let error = answer.error();
    assert_eq!(
        (error["type"].as_str(), error["code"].as_str()),
        (Some("invalid_request_error"), Some("invalid_offer"))
    );
    assert_eq!(error["param"], "sdp");
    assert!(error["message"].as_str().unwrap().contains("ice-pwd"), "{error}");
    assert_eq!((shared.directory.pending(), shared.seats.used()), (0, 0));
}

#[tokio::test]
async fn empty_and_huge_bodies_are_refused() {
    let shared = shared();
    assert_eq!(post(&shared, "application/sdp", "").await.error()["code"], "invalid_offer");
    let long = "a".repeat(MAX_OFFER_BYTES + 1);
    assert_eq!(post(&shared, "application/sdp", long.clone()).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let (kind, body) = form(&[("sdp", "", &long)]);
    assert_eq!(post(&shared, &kind, body).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let mebibyte = post(&shared, "application/sdp", "a".repeat(1 << 20)).await;
    assert_eq!(mebibyte.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(mebibyte.error()["code"], "payload_too_large");
    let latin1 = post(&shared, "application/sdp", vec![0xe9; 100]).await;
    assert_eq!((latin1.status, latin1.error()["code"].as_str()), (StatusCode::BAD_REQUEST, Some("invalid_encoding")));
}

#[tokio::test]
async fn a_body_that_does_not_end_is_given_up() {
    let silent = tokio_stream::pending::<std::io::Result<axum::body::Bytes>>();
    let request = Request::builder().header("content-type", "application/sdp").body(Body::from_stream(silent)).unwrap();
    let refused = super::body::read_within(Duration::from_millis(10), request).await.unwrap_err();
    assert_eq!((refused.status, refused.code), (StatusCode::REQUEST_TIMEOUT, "request_timeout"));
}

#[tokio::test]
async fn other_types_forms_without_an_offer_and_sessions_that_are_no_objects_are_refused() {
    let shared = shared();
    for kind in ["", "application/json", "application/x-www-form-urlencoded"] {
        let answer = post(&shared, kind, offer()).await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
        assert!(answer.error()["message"].as_str().unwrap().contains("application/sdp"));
    }
    let (kind, body) = form(&[("session", "", "{}")]);
    assert_eq!(post(&shared, &kind, body).await.error()["code"], "missing_offer");
    assert_eq!(post(&shared, "multipart/form-data", "x").await.status, StatusCode::BAD_REQUEST);
    for session in ["{", "[]", r#"{"model":7}"#] {
        let (kind, body) = form(&[("sdp", "", &offer()), ("session", "", session)]);
        let answer = post(&shared, &kind, body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{session}");
        assert!(answer.error()["param"].as_str().unwrap().starts_with("session"));
    }
}

#[tokio::test]
async fn without_a_seat_the_answer_is_503_with_retry_after() {
    let shared = shared();
    for draining in [false, true] {
        shared.draining.store(draining, Ordering::Relaxed);
        let answer = request(&shared, "POST", "/v1/realtime/calls?model=parrot", "application/sdp", offer()).await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.header("retry-after"), "1");
        assert_eq!(answer.error()["type"], "server_error");
        assert_eq!(answer.error()["code"], if draining { "draining" } else { "no_seat" });
    }
}

#[test]
fn fifty_offers_at_once_for_one_seat_give_one_call() {
    let shared = shared();
    lease(&shared, 1);
    let offer = offer();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let answer = |seed| {
            let (shared, offer) = (&shared, &offer);
            scope.spawn(move || {
                let call = CreateCall { offer, model: Some("parrot"), ..CreateCall::default() };
                create_call(shared, Instant::now(), 1, &mut StdRng::seed_from_u64(seed), call)
            })
        };
        let threads: Vec<_> = (0..50).map(answer).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert!(refused.clone().count() == 49 && refused.clone().all(|error| error.code == "no_seat"));
}

#[tokio::test]
async fn delete_ends_a_call_once_and_hangup_is_idempotent() {
    let shared = shared();
    let call = post(&shared, "application/sdp", offer()).await.header("location").to_owned();
    assert_eq!(request(&shared, "DELETE", &call, "", "").await.status, StatusCode::OK);
    assert_eq!((shared.directory.sessions(), shared.seats.used()), (0, 0));
    let again = request(&shared, "DELETE", &call, "", "").await;
    assert_eq!((again.status, again.error()["code"].as_str()), (StatusCode::NOT_FOUND, Some("call_id_not_found")));

    let call = post(&shared, "application/sdp", offer()).await.header("location").to_owned();
    for _ in 0..2 {
        let hang_up = request(&shared, "POST", &format!("{call}/hangup"), "application/json", "").await;
        assert_eq!(hang_up.status, StatusCode::OK);
    }
    assert_eq!(shared.seats.used(), 0);
    let nonsense = request(&shared, "POST", "/v1/realtime/calls/rtc_xyz/hangup", "", "").await;
    assert_eq!(
        (nonsense.status, nonsense.error()["code"].as_str()),
        (StatusCode::NOT_FOUND, Some("call_id_not_found"))
    );
}

#[tokio::test]
async fn unknown_paths_and_methods_are_answered_as_json() {
    let shared = shared();
    let path = request(&shared, "GET", "/v1/nothing", "", "").await;
    assert_eq!((path.status, path.error()["code"].as_str()), (StatusCode::NOT_FOUND, Some("unknown_url")));
    let method = request(&shared, "PUT", "/v1/realtime/calls", "", "").await;
    assert_eq!(method.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(method.error()["code"], "method_not_allowed");
}

#[tokio::test]
async fn queries_and_ids_that_cannot_be_read_are_answered_as_json() {
    let shared = shared();
    let twice = request(&shared, "POST", "/v1/realtime/calls?model=a&model=b", "application/sdp", offer()).await;
    assert_eq!((twice.status, twice.error()["code"].as_str()), (StatusCode::BAD_REQUEST, Some("invalid_query")));
    assert_eq!(shared.counts.refused.load(Ordering::Relaxed), 1);
    for id in ["%ff", "rtc_+000000000000001", "rtc_FFFFFFFFFFFFFFFF"] {
        for (method, uri) in [("DELETE", id.to_owned()), ("POST", format!("{id}/hangup"))] {
            let answer = request(&shared, method, &format!("/v1/realtime/calls/{uri}"), "", "").await;
            let found = (answer.status, answer.error()["code"].as_str().map(str::to_owned));
            assert_eq!(found, (StatusCode::NOT_FOUND, Some("call_id_not_found".to_owned())), "{method} {uri}");
        }
    }
}

#[tokio::test]
async fn a_session_is_kept_for_a_transceiver_and_not_for_the_edge() {
    let shared = shared();
    lease(&shared, 1);
    for (model, kept) in [("parrot", r#"{"model":"parrot"}"#), ("echo", "")] {
        let session = format!(r#"{{"model":"{model}"}}"#);
        let (kind, body) = form(&[("sdp", "application/sdp", &offer()), ("session", "application/json", &session)]);
        let answer = post(&shared, &kind, body).await;
        let id = answer.header("location").rsplit('/').next().unwrap().parse().unwrap();
        let entry = shared.directory.get(id).unwrap();
        assert_eq!(shared.directory.claim(&entry, 0).unwrap().call.session_config, kept, "{model}");
    }
}

#[tokio::test]
async fn browsers_of_other_origins_may_call_and_read_the_location() {
    let shared = shared();
    let asked = "authorization,content-type,x-openai-agents-sdk";
    let preflight = Request::builder()
        .method("OPTIONS")
        .uri("/v1/realtime/calls")
        .header("origin", "https://app.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", asked)
        .body(Body::empty())
        .unwrap();
    let answer = send(&shared, preflight).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    assert_eq!(answer.header("access-control-allow-headers"), asked);
    for method in ["POST", "PATCH", "DELETE", "OPTIONS"] {
        assert!(answer.header("access-control-allow-methods").contains(method));
    }
    for answer in [post(&shared, "application/sdp", offer()).await, post(&shared, "application/sdp", "").await] {
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        let exposed = answer.header("access-control-expose-headers").to_ascii_lowercase();
        for name in ["location", "etag", "link", "accept-patch"] {
            assert!(exposed.split(',').any(|exposed| exposed.trim() == name), "{exposed}");
        }
    }
}

#[tokio::test]
async fn the_page_is_served() {
    let shared = shared();
    let page = request(&shared, "GET", "/", "", "").await;
    assert_eq!((page.status, page.header("content-type")), (StatusCode::OK, "text/html; charset=utf-8"));
    assert!(page.body.contains("<html"));
    assert_eq!(request(&shared, "GET", "/assets/none.js", "", "").await.status, StatusCode::NOT_FOUND);
    assert_eq!(request(&shared, "GET", "/assets/../Cargo.toml", "", "").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn the_client_module_is_served_to_pages_of_any_origin_with_its_types() {
    let shared = shared();
    for (path, kind) in
        [("/fronthaul.js", "text/javascript; charset=utf-8"), ("/fronthaul.d.ts", "text/plain; charset=utf-8")]
    {
        let module = request(&shared, "GET", path, "", "").await;
        assert_eq!((module.status, module.header("content-type")), (StatusCode::OK, kind));
        assert_eq!(module.header("access-control-allow-origin"), "*");
        assert_eq!(module.header("cross-origin-resource-policy"), "cross-origin");
        assert!(module.body.contains("FronthaulError"));
    }
}

#[test]
fn the_readme_shows_the_page_s_call_as_it_is() {
    let readme = include_str!("../../../../README.md");
    assert!(readme.contains(include_str!("../../page/app.js")), "copy crates/edge/page/app.js into README.md");
}

#[tokio::test]
async fn a_source_that_asks_too_often_is_told_to_wait_and_others_are_not() {
    let shared = shared();
    lease(&shared, 10);
    let callers = Callers::new(Instant::now(), 2, 7);
    let ask = async |source: [u8; 4]| {
        let request = Request::post("/v1/realtime/calls").header("content-type", "application/sdp");
        let request = request.extension(callers.caller(source.into())).body(offer().into()).unwrap();
        send(&shared, request).await
    };
    for _ in 0..2 {
        assert_eq!(ask([192, 0, 2, 9]).await.status, StatusCode::CREATED);
    }
    let refused = ask([192, 0, 2, 9]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "1"));
    assert_eq!(refused.error()["code"], "too_many_calls");
    assert_eq!(ask([192, 0, 2, 10]).await.status, StatusCode::CREATED);
    assert_eq!(shared.counts.limited.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_source_whose_calls_all_wait_is_told_so_until_one_is_claimed_or_over() {
    let shared = shared();
    let callers = Callers::new(Instant::now(), 100, 7);
    let ask = async |source: [u8; 4]| {
        let request = Request::post("/v1/realtime/calls").header("content-type", "application/sdp");
        let request = request.extension(callers.caller(source.into())).body(offer().into()).unwrap();
        send(&shared, request).await
    };
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(ask([192, 0, 2, 9]).await.header("location").to_owned());
    }
    for _ in 0..5 {
        let refused = ask([192, 0, 2, 9]).await;
        assert_eq!((refused.status, refused.header("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "1"));
        assert_eq!(refused.error()["code"], "too_many_unclaimed");
    }
    assert_eq!((shared.seats.used(), shared.counts.limited.load(Ordering::Relaxed)), (3, 5), "no seat is taken");
    assert_eq!(ask([192, 0, 2, 10]).await.status, StatusCode::CREATED);

    let id = |call: &str| call.rsplit('/').next().unwrap().parse().unwrap();
    let entry = shared.directory.get(id(&calls[0])).unwrap();
    let claimed = shared.directory.claim(&entry, 0).unwrap();
    // As the worker does, which takes it apart.
    let crate::directory::Pending { seat, place, .. } = *claimed;
    drop(place);
    assert_eq!(ask([192, 0, 2, 9]).await.status, StatusCode::CREATED, "one is claimed");
    assert_eq!(ask([192, 0, 2, 9]).await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(request(&shared, "DELETE", &calls[1], "", "").await.status, StatusCode::OK);
    assert_eq!(ask([192, 0, 2, 9]).await.status, StatusCode::CREATED, "one is over");
    drop(seat);
    shared.directory.expire(Instant::now() + Duration::from_secs(31));
    assert_eq!((shared.waiting.sources(), shared.seats.used()), (0, 0));
}

#[tokio::test]
async fn a_negotiated_channel_is_named_in_the_query() {
    let shared = shared();
    for (id, expected) in [("0", Some(0)), ("65534", Some(65_534)), ("65535", None), ("-1", None), ("x", None)] {
        let uri = format!("/v1/realtime/calls?model=echo&dcid={id}");
        let answer = request(&shared, "POST", &uri, "application/sdp", offer()).await;
        let Some(expected) = expected else {
            assert_eq!((answer.status, answer.error()["param"].as_str()), (StatusCode::BAD_REQUEST, Some("dcid")));
            continue;
        };
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        let session = answer.header("location").rsplit('/').next().unwrap().parse().unwrap();
        let entry = shared.directory.get(session).unwrap();
        let setup = shared.directory.claim(&entry, 0).unwrap().setup;
        assert_eq!(setup.sctp.unwrap().negotiated, [rtc::Negotiated::reliable(expected, "oai-events")]);
    }
}
/// A page with one peer connection: offers that belong together.
struct Page {
    rtc: str0m::Rtc,
    pending: Option<str0m::change::SdpPendingOffer>,
}

impl Page {
    fn new() -> Self {
        Self { rtc: str0m::RtcConfig::new().build(Instant::now()), pending: None }
    }

    fn first_offer(&mut self) -> String {
        let mut change = self.rtc.sdp_api();
        change.add_media(str0m::media::MediaKind::Audio, str0m::media::Direction::SendRecv, None, None, None);
        change.add_channel("oai-events".into());
        let (offer, pending) = change.apply().unwrap();
        self.pending = Some(pending);
        offer.to_sdp_string()
    }

    fn restart(&mut self) -> String {
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

fn value<'a>(sdp: &'a str, name: &str) -> &'a str {
    sdp.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name} in {sdp}"))
}

async fn patch(shared: &Arc<Shared>, call: &str, if_match: Option<&str>, body: impl Into<Body>) -> Answer {
    let mut request =
        Request::builder().method("PATCH").uri(call).header("content-type", "application/trickle-ice-sdpfrag");
    if let Some(tag) = if_match {
        request = request.header("if-match", tag);
    }
    send(shared, request.body(body.into()).unwrap()).await
}

#[tokio::test]
async fn a_later_offer_before_the_first_check_restarts_ice_in_the_same_call() {
    let shared = shared();
    let mut page = Page::new();
    let created = post(&shared, "application/sdp", page.first_offer()).await;
    let call = created.header("location").to_owned();
    assert_eq!((created.header("etag"), created.header("accept-patch")), ("\"1\"", "application/trickle-ice-sdpfrag"));
    page.accept(&created.body);
    let mut ufrags = vec![value(&created.body, "a=ice-ufrag:").to_owned()];
    for number in 2..5 {
        let restarted = request(&shared, "POST", &call, "application/sdp", page.restart()).await;
        assert_eq!((restarted.status, restarted.header("content-type")), (StatusCode::OK, "application/sdp"));
        assert_eq!(restarted.header("etag"), format!("\"{number}\""));
        assert!(restarted.header("location").is_empty());
        page.accept(&restarted.body);
        let ufrag = value(&restarted.body, "a=ice-ufrag:").to_owned();
        assert!(!ufrags.contains(&ufrag), "within one second");
        let keys = shared.keys.current();
        let route = keys.route().open(&ufrag).expect("a token of ours");
        assert!(call.ends_with(&route.session.to_string()), "both lead to the same session");
        assert_eq!(keys.route().password(&ufrag).as_deref(), Some(value(&restarted.body, "a=ice-pwd:")));
        assert_eq!(value(&restarted.body, "a=fingerprint:"), value(&created.body, "a=fingerprint:"));
        ufrags.push(ufrag);
    }
    assert_eq!((shared.directory.sessions(), shared.seats.used()), (1, 1));
    assert_eq!(shared.counts.restarted.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn offers_of_other_peer_connections_are_refused_and_the_call_lives_on() {
    let shared = shared();
    let mut page = Page::new();
    let call = post(&shared, "application/sdp", page.first_offer()).await.header("location").to_owned();
    let foreign = request(&shared, "POST", &call, "application/sdp", offer()).await;
    assert_eq!(
        (foreign.status, foreign.error()["code"].as_str()),
        (StatusCode::UNPROCESSABLE_ENTITY, Some("offer_changes_call"))
    );
    assert!(foreign.error()["message"].as_str().unwrap().contains("a=fingerprint"), "{}", foreign.body);
    for (kind, body, status) in [
        ("application/sdp", "v=0".to_owned(), StatusCode::BAD_REQUEST),
        ("application/sdp", String::new(), StatusCode::BAD_REQUEST),
        ("application/sdp", "a".repeat(1 << 20), StatusCode::PAYLOAD_TOO_LARGE),
        ("application/json", "{}".to_owned(), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("multipart/form-data; boundary=x", String::new(), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("", String::new(), StatusCode::UNSUPPORTED_MEDIA_TYPE),
    ] {
        let answer = request(&shared, "POST", &call, kind, body).await;
        assert_eq!(answer.status, status, "{kind}: {}", answer.body);
    }
    assert_eq!(request(&shared, "GET", &call, "", "").await.status, StatusCode::NO_CONTENT);
    assert_eq!(shared.counts.change_refused.load(Ordering::Relaxed), 7);
}

#[tokio::test]
async fn later_offers_and_fragments_for_calls_that_are_not_here_are_404() {
    let shared = shared();
    let mut page = Page::new();
    let call = post(&shared, "application/sdp", page.first_offer()).await.header("location").to_owned();
    assert_eq!(request(&shared, "DELETE", &call, "", "").await.status, StatusCode::OK);
    for call in
        [call.as_str(), "/v1/realtime/calls/rtc_0000000000000000", "/v1/realtime/calls/x", "/v1/realtime/calls/%ff"]
    {
        for answer in [
            request(&shared, "POST", call, "application/sdp", offer()).await,
            patch(&shared, call, Some("*"), "").await,
            request(&shared, "GET", call, "", "").await,
        ] {
            assert_eq!(
                (answer.status, answer.error()["code"].as_str()),
                (StatusCode::NOT_FOUND, Some("call_id_not_found"))
            );
        }
    }
}

const RESTART: &str = "a=group:BUNDLE 0 1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
    a=ice-ufrag:ysXw\r\na=ice-pwd:vw5LmwG4y/e6dPP/zAP9Gp5k\r\na=end-of-candidates\r\n";

#[tokio::test]
async fn patch_obeys_its_preconditions() {
    let shared = shared();
    let mut page = Page::new();
    let created = post(&shared, "application/sdp", page.first_offer()).await;
    let call = created.header("location").to_owned();
    let candidate = "a=candidate:1 1 udp 2122260223 192.0.2.1 61764 typ host\r\n";

    let trickled = patch(&shared, &call, Some("\"1\""), candidate).await;
    assert_eq!((trickled.status, trickled.header("etag"), trickled.body.as_str()), (StatusCode::NO_CONTENT, "", ""));
    for body in ["", "a=candidate:\r\n", "a=end-of-candidates\r\n"] {
        assert_eq!(patch(&shared, &call, Some("\"1\""), body).await.status, StatusCode::NO_CONTENT, "{body:?}");
    }
    assert_eq!(patch(&shared, &call, None, candidate).await.status, StatusCode::PRECONDITION_REQUIRED);
    for other in ["\"2\"", "W/\"1\"", "1", "\"", "x"] {
        let refused = patch(&shared, &call, Some(other), candidate).await;
        assert_eq!(refused.status, StatusCode::PRECONDITION_FAILED, "{other}");
    }
    assert_eq!(patch(&shared, &call, Some("\"1\""), RESTART).await.status, StatusCode::BAD_REQUEST);

    let restarted = patch(&shared, &call, Some("*"), RESTART).await;
    assert_eq!((restarted.status, restarted.header("etag")), (StatusCode::OK, "\"2\""), "{}", restarted.body);
    assert_eq!(restarted.header("content-type"), "application/trickle-ice-sdpfrag");
    assert_ne!(value(&restarted.body, "a=ice-ufrag:"), value(&created.body, "a=ice-ufrag:"));
    assert!(restarted.body.contains("a=ice-lite\r\n") && restarted.body.contains("192.0.2.1 3478"));
    assert_eq!(patch(&shared, &call, Some("\"1\""), candidate).await.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(patch(&shared, &call, Some("\"1\", \"2\""), candidate).await.status, StatusCode::NO_CONTENT);
    assert_eq!(patch(&shared, &call, Some("\"*\""), RESTART).await.status, StatusCode::NO_CONTENT, "the same again");
}

#[tokio::test]
async fn patches_that_cannot_be_read_are_refused() {
    let shared = shared();
    let call = post(&shared, "application/sdp", offer()).await.header("location").to_owned();
    for (body, status) in [
        (b"a=candidate:x\r\n".to_vec(), StatusCode::BAD_REQUEST),
        (b"{}".to_vec(), StatusCode::BAD_REQUEST),
        (vec![0xFF; 100], StatusCode::BAD_REQUEST),
        (vec![b'a'; 1 << 20], StatusCode::PAYLOAD_TOO_LARGE),
        (b"a=ice-ufrag:abcd\r\n".to_vec(), StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(patch(&shared, &call, Some("*"), body).await.status, status);
    }
    let typed = request(&shared, "PATCH", &call, "application/sdp", "").await;
    assert_eq!(typed.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert_eq!(request(&shared, "PUT", &call, "", "").await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(request(&shared, "PATCH", "/v1/realtime/calls", "", "").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn options_say_what_post_and_patch_take() {
    let shared = shared();
    let endpoint = request(&shared, "OPTIONS", "/v1/realtime/calls", "", "").await;
    assert_eq!((endpoint.status, endpoint.header("accept-post")), (StatusCode::OK, "application/sdp"));
    let call = request(&shared, "OPTIONS", "/v1/realtime/calls/rtc_0000000000000000", "", "").await;
    assert_eq!((call.status, call.header("accept-patch")), (StatusCode::OK, "application/trickle-ice-sdpfrag"));
    assert_eq!(request(&shared, "GET", "/v1/realtime/calls", "", "").await.status, StatusCode::NO_CONTENT);
}

/// Nobody reads the mailbox of this worker: the questions are bounded, and so is the wait for an answer.
#[tokio::test]
async fn a_worker_that_does_not_answer_is_given_up() {
    let shared = shared();
    let mut page = Page::new();
    let call = post(&shared, "application/sdp", page.first_offer()).await.header("location").to_owned();
    let session = call.rsplit('/').next().unwrap().parse().unwrap();
    let entry = shared.directory.get(session).unwrap();
    let pending = shared.directory.claim(&entry, 0).unwrap();
    let mut asked = vec![];
    for _ in 0..100 {
        asked.push(tokio::spawn({
            let (shared, call) = (Arc::clone(&shared), call.clone());
            async move { patch(&shared, &call, Some("*"), RESTART).await.status }
        }));
    }
    for answer in asked {
        assert_eq!(answer.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    }
    drop(pending);
}

#[tokio::test]
async fn later_offers_are_paid_for_like_first_ones() {
    let shared = shared();
    let callers = Callers::new(Instant::now(), 2, 7);
    let mut answers = vec![];
    let mut page = Page::new();
    let call = post(&shared, "application/sdp", page.first_offer()).await.header("location").to_owned();
    for _ in 0..3 {
        let request = Request::post(&call).header("content-type", "application/sdp");
        let request = request.extension(callers.caller([192, 0, 2, 9].into())).body(Body::from("v=0")).unwrap();
        answers.push(send(&shared, request).await.status);
    }
    assert_eq!(answers, [StatusCode::BAD_REQUEST, StatusCode::BAD_REQUEST, StatusCode::TOO_MANY_REQUESTS]);
}

/// The id does not say which edge answered, but the client knows.
#[tokio::test]
async fn in_a_pop_the_call_of_another_edge_is_said_to_be_elsewhere() {
    let pop = crate::directory::Pop::new(&[EdgeId(2)], 0);
    let shared = Shared { directory: Directory::in_pop(1, pop), ..Arc::into_inner(shared()).unwrap() };
    let call = "/v1/realtime/calls/rtc_0000000000000000";
    let answer = request(&Arc::new(shared), "POST", call, "application/sdp", offer()).await;
    assert_eq!((answer.status, answer.error()["code"].as_str()), (StatusCode::NOT_FOUND, Some("call_id_not_found")));
    assert!(answer.error()["message"].as_str().unwrap().contains("the edge that answered the call"), "{}", answer.body);
}

#[tokio::test]
async fn one_of_the_tags_of_if_match_has_to_be_the_calls() {
    let shared = shared();
    let call = post(&shared, "application/sdp", Page::new().first_offer()).await.header("location").to_owned();
    for (tags, status) in [
        ("\"1\", \"2\"", StatusCode::NO_CONTENT),
        ("\"7\",\"1\"", StatusCode::NO_CONTENT),
        ("\"2\", \"3\"", StatusCode::PRECONDITION_FAILED),
        ("W/\"1\"", StatusCode::PRECONDITION_FAILED),
    ] {
        assert_eq!(patch(&shared, &call, Some(tags), "").await.status, status, "{tags}");
    }
}

mod keys {
    //! What is answered with and without a key.

    use super::*;
    use crate::auth::{Allowance, ApiKey, Grant};

    const APP: &str = "an API key of app";
    const OTHER: &str = "an API key of another tenant";

    fn guarded(allowance: Allowance) -> Arc<Shared> {
        let keys = vec![
            ApiKey::of_text(APP, Grant::new(1, "key:app", allowance)),
            ApiKey::of_text(OTHER, Grant::new(2, "key:other", Allowance::default())),
        ];
        let shared = Shared { auth: Auth::new(false, keys, None), ..Arc::into_inner(shared()).unwrap() };
        lease(&shared, 10);
        Arc::new(shared)
    }

    async fn ask(shared: &Arc<Shared>, method: &str, uri: &str, key: &str, kind: &str, body: String) -> Answer {
        let mut request = Request::builder().method(method).uri(uri).header("content-type", kind);
        if !key.is_empty() {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        send(shared, request.body(body.into()).unwrap()).await
    }

    async fn call(shared: &Arc<Shared>, key: &str) -> Answer {
        ask(shared, "POST", "/v1/realtime/calls", key, "application/sdp", offer()).await
    }

    async fn secret(shared: &Arc<Shared>, key: &str, body: serde_json::Value) -> Answer {
        let uri = "/v1/realtime/client_secrets";
        ask(shared, "POST", uri, key, "application/json", body.to_string()).await
    }

    fn value(answer: &Answer) -> String {
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        body["value"].as_str().unwrap().to_owned()
    }

    #[tokio::test]
    async fn without_a_good_key_nothing_is_answered_but_the_page_and_preflights() {
        let shared = guarded(Allowance::default());
        for (method, uri) in [
            ("POST", "/v1/realtime/calls"),
            ("POST", "/openai/v1/realtime/calls"),
            ("POST", "/v1/realtime/tickets"),
            ("POST", "/v1/realtime/client_secrets"),
            ("POST", "/v1/realtime/sessions"),
            ("DELETE", "/v1/realtime/calls/rtc_0000000000000001"),
            ("PATCH", "/v1/realtime/calls/rtc_0000000000000001"),
            ("GET", "/v1/realtime/calls/rtc_0000000000000001"),
            ("POST", "/v1/realtime/calls/rtc_0000000000000001/hangup"),
        ] {
            for key in ["", "wrong"] {
                let answer = ask(&shared, method, uri, key, "application/sdp", offer()).await;
                assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{method} {uri}");
                assert_eq!(answer.error()["code"], "invalid_api_key");
                assert_eq!((answer.header("www-authenticate"), answer.header("x-should-retry")), ("Bearer", "false"));
            }
        }
        assert_eq!(shared.counts.unauthorized.load(Ordering::Relaxed), 18);
        assert_eq!(ask(&shared, "GET", "/", "", "", String::new()).await.status, StatusCode::OK);
        assert_eq!(
            ask(&shared, "GET", "/v1/realtime/calls", "", "", String::new()).await.status,
            StatusCode::NO_CONTENT
        );
        let preflight = Request::builder()
            .method("OPTIONS")
            .uri("/v1/realtime/calls")
            .header("origin", "https://app.example")
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization");
        assert_eq!(send(&shared, preflight.body(Body::empty()).unwrap()).await.status, StatusCode::OK);
        assert_eq!(shared.directory.pending(), 0);
    }

    #[tokio::test]
    async fn a_call_is_its_tenants_alone() {
        let shared = guarded(Allowance::default());
        let made = call(&shared, APP).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
        let location = made.header("location").to_owned();
        let delete = async |key| ask(&shared, "DELETE", &location, key, "", String::new()).await.status;
        let get = async |key| ask(&shared, "GET", &location, key, "", String::new()).await.status;
        assert_eq!((get(OTHER).await, delete(OTHER).await), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
        let hang_up = ask(&shared, "POST", &format!("{location}/hangup"), OTHER, "", String::new()).await;
        assert_eq!(
            (hang_up.status, get(APP).await),
            (StatusCode::OK, StatusCode::NO_CONTENT),
            "nothing is told, nothing ends"
        );
        assert_eq!(delete(APP).await, StatusCode::OK);
    }

    #[tokio::test]
    async fn limits_of_a_key_hold_for_calls() {
        let allowance = Allowance { max_seconds: 60, max_concurrent: 1, models: vec!["parrot".to_owned()] };
        let shared = guarded(allowance);
        let at = async |query: &str| {
            let uri = format!("/v1/realtime/calls{query}");
            ask(&shared, "POST", &uri, APP, "application/sdp", offer()).await
        };
        let refused = at("?model=echo").await;
        assert_eq!(
            (refused.status, refused.error()["code"].as_str()),
            (StatusCode::FORBIDDEN, Some("model_not_allowed"))
        );
        let made = at("").await;
        assert_eq!(made.status, StatusCode::CREATED, "the default is not allowed, so the one that is: {}", made.body);
        let second = at("?model=parrot").await;
        assert_eq!(second.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(
            (second.error()["code"].as_str(), second.header("x-should-retry")),
            (Some("too_many_concurrent"), "true")
        );
        assert_eq!(shared.seats.status()[1].used, 1, "no seat is left taken");
        let uri = made.header("location").to_owned();
        ask(&shared, "DELETE", &uri, APP, "", String::new()).await;
        assert_eq!(at("").await.status, StatusCode::CREATED);
        let terms = crate::tickets::Terms { lifetime_seconds: 60, max_call_tens: 0 };
        let models = shared.models.values();
        shared.directory.honor(crate::tickets::Tickets::new(terms, Arc::clone(&shared.seats), models, 1));
        let ticket = ask(&shared, "POST", "/v1/realtime/tickets", APP, "", String::new()).await;
        assert_eq!((ticket.status, ticket.error()["code"].as_str()), (StatusCode::CONFLICT, Some("ticket_limited")));
    }

    #[tokio::test]
    async fn an_ephemeral_key_brings_its_session_and_its_limits() {
        let shared = guarded(Allowance::default());
        let session = serde_json::json!({ "type": "realtime", "model": "parrot", "instructions": "Be brief." });
        let asked = serde_json::json!({
            "expires_after": { "anchor": "created_at", "seconds": 60 },
            "session": session,
            "limits": { "max_seconds": 15 },
        });
        let answer = secret(&shared, APP, asked).await;
        let key = value(&answer);
        let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        let left = body["expires_at"].as_u64().unwrap() - u64::from(net::clock::unix_seconds());
        assert!((59..=60).contains(&left) && key.starts_with("ek_") && !key.contains("brief"));
        assert_eq!(
            (&body["session"]["object"], &body["session"]["instructions"]),
            (&"realtime.session".into(), &"Be brief.".into())
        );
        assert!(body["session"]["id"].as_str().unwrap().starts_with("sess_"));

        let (kind, form) = form(&[("sdp", "", &offer()), ("session", "", r#"{"instructions":"Sing."}"#)]);
        let made = ask(&shared, "POST", "/v1/realtime/calls", &key, &kind, form).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
        let id = made.header("location").rsplit('/').next().unwrap().parse().unwrap();
        let entry = shared.directory.get(id).unwrap();
        let pending = shared.directory.claim(&entry, 0).unwrap();
        assert_eq!(
            (pending.call.terms.max_seconds, pending.call.terms.tenant, pending.call.model.as_str()),
            (15, 1, "parrot")
        );
        let config: serde_json::Value = serde_json::from_str(&pending.call.session_config).unwrap();
        assert_eq!((&config["instructions"], &config["type"]), (&"Sing.".into(), &"realtime".into()));

        let again = secret(&shared, &key, serde_json::json!({})).await;
        assert_eq!(
            (again.status, again.error()["code"].as_str()),
            (StatusCode::FORBIDDEN, Some("insufficient_permissions"))
        );
        // The project's own key ends a call that an ephemeral one made.
        assert_eq!(
            ask(&shared, "GET", made.header("location"), APP, "", String::new()).await.status,
            StatusCode::NO_CONTENT
        );
    }

    #[tokio::test]
    async fn what_cannot_be_in_a_key_is_named() {
        let shared = guarded(Allowance { models: vec!["parrot".to_owned()], ..Allowance::default() });
        let long = "x".repeat(9000);
        for (body, code, param) in [
            (
                serde_json::json!({ "expires_after": { "seconds": 9 } }),
                "integer_out_of_range",
                Some("expires_after.seconds"),
            ),
            (
                serde_json::json!({ "expires_after": { "anchor": "used_at" } }),
                "invalid_value",
                Some("expires_after.anchor"),
            ),
            (serde_json::json!({ "session": { "type": "translation" } }), "invalid_value", Some("session.type")),
            (serde_json::json!({ "session": { "instructions": long } }), "string_above_max_length", Some("session")),
            (serde_json::json!({ "limits": { "max_secs": 1 } }), "invalid_json", Some("body")),
            (serde_json::json!({ "limits": { "models": ["echo"] } }), "model_not_allowed", Some("session.model")),
            (serde_json::json!({ "session": { "model": "echo" } }), "model_not_allowed", Some("session.model")),
        ] {
            let answer = secret(&shared, APP, body.clone()).await;
            let error = answer.error();
            assert!(answer.status.is_client_error(), "{body}");
            assert_eq!((error["code"].as_str(), error["param"].as_str()), (Some(code), param), "{body}");
        }
        assert_eq!(shared.counts.secrets.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn the_former_ways_to_a_key_still_lead_there() {
        let shared = guarded(Allowance::default());
        for path in ["sessions", "transcription_sessions"] {
            let uri = format!("/v1/realtime/{path}");
            let answer = ask(&shared, "POST", &uri, APP, "application/json", r#"{"model":"parrot"}"#.to_owned()).await;
            let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            let key = body["client_secret"]["value"].as_str().unwrap();
            assert_eq!(call(&shared, key).await.status, StatusCode::CREATED);
        }
    }
}
