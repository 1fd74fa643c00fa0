//! Later offers and fragments for a call.

use super::*;

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
