//! What is answered to who asks for a call, for the page, or for what is not there.

use super::*;

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
    let refused = crate::signaling::body::read_within(Duration::from_millis(10), request).await.unwrap_err();
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
    let readme = include_str!("../../../../../README.md");
    assert!(readme.contains(include_str!("../../../page/app.js")), "copy crates/edge/page/app.js into README.md");
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
