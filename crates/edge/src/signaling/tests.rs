//! Facts about the HTTP surface, through the router itself.

mod calls;
mod changes;
mod keys;
mod small_webrtc;
mod whip;

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
