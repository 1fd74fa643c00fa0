//! WHIP (RFC 9725), requirement by requirement. What is beyond it, or deviates: docs/RFC.md.

use axum::http::header;

use super::*;
use crate::auth::{Allowance, ApiKey, Grant};
use crate::config::{IceServer, Secret};

const ENDPOINT: &str = "/v1/realtime/calls";
const SDP: &str = "application/sdp";
const FRAGMENT: &str = "application/trickle-ice-sdpfrag";
const CANDIDATE: &str = "a=candidate:1 1 udp 2122260223 192.0.2.1 61764 typ host\r\n";
const RESTART: &str = "a=group:BUNDLE 0 1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
    a=ice-ufrag:ysXw\r\na=ice-pwd:vw5LmwG4y/e6dPP/zAP9Gp5k\r\na=end-of-candidates\r\n";

/// The answer to an offer, and the session's URL.
async fn ingest(shared: &Arc<Shared>, offer: String) -> (Answer, String) {
    let answer = post(shared, SDP, offer).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
    let location = answer.header("location").to_owned();
    (answer, location)
}

/// An offer with lines replaced.
fn changed(from: &str, to: &str) -> String {
    let sound = offer();
    let changed = sound.replace(from, to);
    assert_ne!(changed, sound, "{from}");
    changed
}

#[tokio::test]
async fn row_1_post_is_answered_with_201_the_answer_and_the_sessions_url() {
    let shared = shared();
    for endpoint in [ENDPOINT, "/openai/v1/realtime/calls"] {
        let answer = request(&shared, "POST", endpoint, SDP, offer()).await;
        assert_eq!((answer.status, answer.header("content-type")), (StatusCode::CREATED, SDP));
        assert!(answer.body.starts_with("v=0\r\n"));
        // Absolute in path, so it resolves against whatever the endpoint's URL is (RFC 3986 §5.2).
        let location = answer.header("location");
        assert!(location.starts_with("/v1/realtime/calls/rtc_"), "{location}");
        assert_eq!(request(&shared, "GET", location, "", "").await.status, StatusCode::NO_CONTENT);
    }
}

#[tokio::test]
async fn row_2_other_types_and_bad_offers_are_4xx() {
    let shared = shared();
    for (kind, body, status) in [
        ("application/json", offer(), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("text/plain", offer(), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        ("", offer(), StatusCode::UNSUPPORTED_MEDIA_TYPE),
        (SDP, String::new(), StatusCode::BAD_REQUEST),
        (SDP, "v=0\r\n".to_owned(), StatusCode::BAD_REQUEST),
        (SDP, changed("a=ice-ufrag:", "a=no-ufrag:"), StatusCode::BAD_REQUEST),
    ] {
        assert_eq!(post(&shared, kind, body).await.status, status, "{kind}");
    }
    assert_eq!((shared.directory.sessions(), shared.seats.used()), (0, 0));
}

#[tokio::test]
async fn row_3_get_has_no_content() {
    let shared = shared();
    let (_, session) = ingest(&shared, offer()).await;
    for url in [ENDPOINT, &session] {
        let answer = request(&shared, "GET", url, "", "").await;
        assert_eq!((answer.status, answer.body.as_str()), (StatusCode::NO_CONTENT, ""), "{url}");
    }
}

#[tokio::test]
async fn row_4_who_only_sends_is_only_received() {
    let shared = shared();
    for (offered, answered) in [("sendonly", "recvonly"), ("sendrecv", "sendrecv")] {
        let (answer, _) = ingest(&shared, offer().replace("a=sendrecv", &format!("a={offered}"))).await;
        let directions = ["sendrecv", "sendonly", "recvonly", "inactive"];
        let found = answer.body.lines().find(|line| directions.iter().any(|one| *line == format!("a={one}")));
        assert_eq!(found, Some(format!("a={answered}").as_str()), "{offered}");
    }
}

#[tokio::test]
async fn row_5_delete_ends_the_session_whatever_if_match_says() {
    let shared = shared();
    let (_, session) = ingest(&shared, offer()).await;
    let delete = async || {
        let request = Request::delete(&session).header("if-match", "\"no tag of it\"");
        send(&shared, request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(delete().await.status, StatusCode::OK);
    assert_eq!((shared.directory.sessions(), shared.seats.used()), (0, 0));
    assert_eq!(delete().await.status, StatusCode::NOT_FOUND);
}

/// An edge that names a TURN server.
fn with_turn() -> Arc<Shared> {
    let server = IceServer {
        urls: vec!["turn:turn.example.net?transport=udp".to_owned(), "turns:turn.example.net".to_owned()],
        username: "user".to_owned(),
        credential: Secret::new("myPassword"),
        secret: Secret::default(),
        lifetime_s: 60,
    };
    let ice_servers = super::super::IceServers::new(&[server]).unwrap();
    Arc::new(Shared { ice_servers, ..Arc::into_inner(shared()).unwrap() })
}

#[tokio::test]
async fn row_6_options_answer_preflights_and_say_what_is_taken() {
    let shared = with_turn();
    let (_, session) = ingest(&shared, offer()).await;
    for (url, patch) in [(ENDPOINT, ""), (session.as_str(), FRAGMENT)] {
        let preflight = Request::options(url)
            .header("origin", "https://app.example")
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization,content-type,if-match");
        let answer = send(&shared, preflight.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert_eq!((answer.header("accept-post"), answer.header("accept-patch")), (SDP, patch), "{url}");
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert_eq!(answer.header("access-control-allow-headers"), "authorization,content-type,if-match");
        assert_eq!(answer.header("access-control-allow-methods"), "GET,POST,PATCH,DELETE,OPTIONS");
        assert_eq!(answer.header("link"), "", "no ice-server on a preflight");
    }
    let (created, _) = ingest(&shared, offer()).await;
    let exposed = created.header("access-control-expose-headers").to_ascii_lowercase();
    assert_eq!(exposed, "location,etag,link,accept-patch,retry-after");
}

#[tokio::test]
async fn row_7_patch_takes_fragments_alone() {
    let shared = shared();
    let (created, session) = ingest(&shared, offer()).await;
    for kind in [SDP, "application/json", "text/plain", ""] {
        let answer = request(&shared, "PATCH", &session, kind, CANDIDATE).await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    for body in ["{}", "a=candidate:x\r\n", "a=ice-ufrag:abcd\r\n", "m=audio\r\n"] {
        let answer = patch(&shared, &session, Some(created.header("etag")), body).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
    }
}

#[tokio::test]
async fn row_8_trickle_and_restart_are_both_supported() {
    let shared = shared();
    let (created, session) = ingest(&shared, offer()).await;
    assert_eq!(patch(&shared, &session, Some(created.header("etag")), CANDIDATE).await.status, StatusCode::NO_CONTENT);
    assert_eq!(patch(&shared, &session, Some("*"), RESTART).await.status, StatusCode::OK);
    assert_eq!(patch(&shared, ENDPOINT, Some("*"), RESTART).await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn row_9_each_ice_session_has_a_strong_tag_of_its_own() {
    let shared = shared();
    let (created, session) = ingest(&shared, offer()).await;
    let mut tags = vec![created.header("etag").to_owned()];
    for ufrag in ["aaaa", "bbbb", "cccc"] {
        let restarted = patch(&shared, &session, Some("*"), RESTART.replace("ysXw", ufrag)).await;
        tags.push(restarted.header("etag").to_owned());
    }
    for (at, tag) in tags.iter().enumerate() {
        assert!(tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"'), "RFC 9110 §8.8.3: {tag}");
        assert!(!tags[..at].contains(tag), "{tags:?}");
    }
}

#[tokio::test]
async fn row_10_a_trickled_candidate_needs_the_tag_and_has_no_answer() {
    let shared = shared();
    let (created, session) = ingest(&shared, offer()).await;
    let tag = created.header("etag");
    let unusable = "a=candidate:1 1 udp 1 nowhere.local 9 typ host\r\na=candidate:2 1 sctp 1 192.0.2.1 9 typ srflx\r\n";
    for body in [CANDIDATE, unusable] {
        let taken = patch(&shared, &session, Some(tag), body).await;
        assert_eq!((taken.status, taken.header("etag"), taken.body.as_str()), (StatusCode::NO_CONTENT, "", ""));
    }
    for (tag, status) in [
        (None, StatusCode::PRECONDITION_REQUIRED),
        (Some("\"another\""), StatusCode::PRECONDITION_FAILED),
        (Some("W/\"1\""), StatusCode::PRECONDITION_FAILED),
    ] {
        assert_eq!(patch(&shared, &session, tag, CANDIDATE).await.status, status, "{tag:?}");
    }
}

#[tokio::test]
async fn row_11_a_restart_has_credentials_candidates_and_a_tag_and_a_refused_one_leaves_the_session() {
    let shared = shared();
    let (created, session) = ingest(&shared, offer()).await;
    let restarted = patch(&shared, &session, Some("*"), RESTART).await;
    assert_eq!((restarted.status, restarted.header("content-type")), (StatusCode::OK, FRAGMENT));
    assert_ne!(restarted.header("etag"), created.header("etag"));
    for name in ["a=ice-ufrag:", "a=ice-pwd:"] {
        assert_ne!(value(&restarted.body, name), value(&created.body, name));
    }
    for line in ["a=ice-lite", "a=end-of-candidates"] {
        assert!(created.body.contains(line) && restarted.body.contains(line), "{line} stays what it was");
    }
    assert!(restarted.body.contains("a=candidate:") && !restarted.body.contains("a=ice-options"));
    let incomplete = patch(&shared, &session, Some("*"), "a=ice-ufrag:zzzz\r\n").await;
    assert_eq!(incomplete.status, StatusCode::BAD_REQUEST);
    assert_eq!(request(&shared, "GET", &session, "", "").await.status, StatusCode::NO_CONTENT, "the session stays");
    let tag = restarted.header("etag");
    assert_eq!(patch(&shared, &session, Some(tag), CANDIDATE).await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn row_12_fragments_hold_the_tagged_line_alone_and_may_end_the_candidates() {
    let shared = shared();
    let (created, session) = ingest(&shared, offer()).await;
    let tag = created.header("etag").to_owned();
    let tagged = format!("a=group:BUNDLE 0 1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n{CANDIDATE}");
    for body in [tagged.as_str(), "a=end-of-candidates\r\n", "a=candidate:\r\n", ""] {
        assert_eq!(
            patch(&shared, &session, Some(&tag), body.to_owned()).await.status,
            StatusCode::NO_CONTENT,
            "{body:?}"
        );
    }
    let restarted = patch(&shared, &session, Some("*"), RESTART).await;
    assert_eq!(restarted.body.lines().filter(|line| line.starts_with("m=")).count(), 1, "{}", restarted.body);
}

#[tokio::test]
async fn row_13_bundled_lines_share_one_stream_with_or_without_rtcp_mux_only() {
    let shared = shared();
    let only = offer().replace("a=rtcp-mux\r\n", "a=rtcp-mux\r\na=rtcp-mux-only\r\n");
    for offer in [offer(), only] {
        let (answer, _) = ingest(&shared, offer).await;
        let group = value(&answer.body, "a=group:BUNDLE ");
        let lines = answer.body.lines().filter(|line| line.starts_with("m=")).count();
        assert_eq!(group.split(' ').count(), lines, "every line is in the group");
        assert_eq!(answer.body.lines().filter(|line| line.starts_with("a=msid:")).count(), 1);
        assert!(answer.body.contains("a=rtcp-mux\r\n"));
    }
    let unmixed = offer().replace("a=rtcp-mux\r\n", "");
    let unmixed: String = unmixed.split("m=application").next().unwrap().replace("BUNDLE 0 1", "BUNDLE 0");
    assert_eq!(post(&shared, SDP, unmixed).await.status, StatusCode::BAD_REQUEST);
}

/// Where RFC 9725 §4.4.2 has the whole offer refused, as a page of a voice app may offer more than a voice can use.
#[tokio::test]
async fn row_13_what_is_no_second_voice_is_refused_by_itself() {
    use str0m::media::{Direction, MediaKind};
    let shared = shared();
    for more in [MediaKind::Audio, MediaKind::Video] {
        let mut rtc = str0m::RtcConfig::new().build(Instant::now());
        let mut change = rtc.sdp_api();
        for kind in [MediaKind::Audio, more] {
            change.add_media(kind, Direction::SendRecv, None, None, None);
        }
        let (answer, _) = ingest(&shared, change.apply().unwrap().0.to_sdp_string()).await;
        let ports = answer.body.lines().filter_map(|line| line.strip_prefix("m=")?.split(' ').nth(1));
        assert_eq!(ports.collect::<Vec<_>>(), ["3478", "0"], "{more:?}");
    }
}

#[tokio::test]
async fn row_14_the_clients_role_may_be_any_that_there_is() {
    let shared = shared();
    for (offered, answered) in [("actpass", "active"), ("active", "passive"), ("passive", "active")] {
        let (answer, _) = ingest(&shared, offer().replace("a=setup:actpass", &format!("a=setup:{offered}"))).await;
        assert_eq!(value(&answer.body, "a=setup:"), answered);
    }
    for unknown in ["holdconn", "both"] {
        let offer = changed("a=setup:actpass", &format!("a=setup:{unknown}"));
        assert_eq!(post(&shared, SDP, offer).await.status, StatusCode::BAD_REQUEST, "{unknown}");
    }
}

#[tokio::test]
async fn row_15_ice_is_lite_at_a_public_address() {
    let shared = shared();
    let (answer, _) = ingest(&shared, offer()).await;
    assert!(answer.body.contains("\r\na=ice-lite\r\n"));
    assert!(value(&answer.body, "a=candidate:").contains(" 192.0.2.1 3478 typ host"));
}

#[tokio::test]
async fn row_16_nothing_is_answered_elsewhere() {
    let shared = shared();
    for (method, url) in
        [("POST", ENDPOINT), ("PATCH", "/v1/realtime/calls/rtc_0000000000000000"), ("POST", "/v1/nowhere")]
    {
        let answer = request(&shared, method, url, SDP, offer()).await;
        assert!(!answer.status.is_redirection(), "{method} {url}: {}", answer.status);
    }
}

#[tokio::test]
async fn row_17_overload_is_503_with_a_time_to_come_again() {
    let shared = shared();
    let full = request(&shared, "POST", "/v1/realtime/calls?model=parrot", SDP, offer()).await;
    assert_eq!((full.status, full.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "1"));
    shared.draining.store(true, Ordering::Relaxed);
    let draining = post(&shared, SDP, offer()).await;
    assert_eq!((draining.status, draining.header("retry-after")), (StatusCode::SERVICE_UNAVAILABLE, "1"));
}

#[tokio::test]
async fn row_18_each_ice_server_is_a_link() {
    let shared = with_turn();
    let (answer, _) = ingest(&shared, offer()).await;
    let links: Vec<&str> = answer.headers.get_all(header::LINK).iter().map(|link| link.to_str().unwrap()).collect();
    let of = |url| {
        format!(
            "<{url}>; rel=\"ice-server\"; username=\"user\"; credential=\"myPassword\"; credential-type=\"password\""
        )
    };
    assert_eq!(links, [of("turn:turn.example.net?transport=udp"), of("turns:turn.example.net")]);
}

#[tokio::test]
async fn row_19_a_bearer_is_needed_for_all_but_preflights() {
    let keys = vec![ApiKey::of_text("good", Grant::new(1, "key:app", Allowance::default()))];
    let shared = Arc::new(Shared { auth: Auth::new(false, keys, None), ..Arc::into_inner(shared()).unwrap() });
    let ask = async |method: &str, url: &str, key: &str| {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", if method == "PATCH" { FRAGMENT } else { SDP });
        let request = request.header("authorization", format!("bearer {key}")).header("if-match", "*");
        send(&shared, request.body(if method == "POST" { offer() } else { RESTART.to_owned() }.into()).unwrap()).await
    };
    let created = ask("POST", ENDPOINT, "good").await;
    assert_eq!(created.status, StatusCode::CREATED, "the scheme's case does not matter (RFC 9110 §11.1)");
    let session = created.header("location");
    for (method, url) in
        [("POST", ENDPOINT), ("POST", session), ("PATCH", session), ("GET", session), ("DELETE", session)]
    {
        let refused = ask(method, url, "bad").await;
        assert_eq!(
            (refused.status, refused.header("www-authenticate")),
            (StatusCode::UNAUTHORIZED, "Bearer"),
            "{method}"
        );
    }
    for (method, status) in [("PATCH", StatusCode::OK), ("GET", StatusCode::NO_CONTENT), ("DELETE", StatusCode::OK)] {
        assert_eq!(ask(method, session, "good").await.status, status, "{method}");
    }
    assert_eq!(request(&shared, "OPTIONS", ENDPOINT, "", "").await.status, StatusCode::OK);
}

#[tokio::test]
async fn row_20_no_extension_is_offered_or_needed() {
    let shared = with_turn();
    let (answer, _) = ingest(&shared, offer()).await;
    let mut links = answer.headers.get_all(header::LINK).iter().map(|link| link.to_str().unwrap());
    assert!(!links.any(|link| link.contains("urn:ietf:params:whip:ext")));
}

#[tokio::test]
async fn row_21_urls_are_not_to_be_guessed_and_who_guesses_pays() {
    let shared = shared();
    let mut urls = std::collections::BTreeSet::new();
    for _ in 0..50 {
        urls.insert(ingest(&shared, offer()).await.1);
    }
    assert_eq!(urls.len(), 50);
    let digits = |url: &str| url.strip_prefix("/v1/realtime/calls/rtc_").map(str::len);
    assert!(urls.iter().all(|url| digits(url) == Some(16)), "64 bits: {urls:?}");
    for (method, kind) in [("POST", SDP), ("PATCH", FRAGMENT), ("DELETE", ""), ("GET", "")] {
        let callers = Callers::new(Instant::now(), 2, 7);
        let mut answers = vec![];
        for _ in 0..3 {
            let request = Request::builder().method(method).uri("/v1/realtime/calls/rtc_0000000000000001");
            let request = request.header("content-type", kind).header("if-match", "*");
            let request = request.extension(callers.caller([192, 0, 2, 9].into()));
            answers.push(send(&shared, request.body(Body::empty()).unwrap()).await.status);
        }
        assert_eq!(answers, [StatusCode::NOT_FOUND, StatusCode::NOT_FOUND, StatusCode::TOO_MANY_REQUESTS], "{method}");
    }
}
