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
    assert_eq!(ask(&shared, "GET", "/v1/realtime/calls", "", "", String::new()).await.status, StatusCode::NO_CONTENT);
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
    assert_eq!((refused.status, refused.error()["code"].as_str()), (StatusCode::FORBIDDEN, Some("model_not_allowed")));
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

    let audio = &body["session"]["audio"];
    let shown = serde_json::json!([
        body["session"]["expires_at"],
        body["session"]["model"],
        body["session"]["tool_choice"],
        audio["input"]["turn_detection"]["interrupt_response"],
        audio["output"]["format"],
    ]);
    let format = serde_json::json!({ "type": "audio/pcm", "rate": 24000 });
    assert_eq!(shown, serde_json::json!([0, "parrot", "auto", true, format]), "defaults are filled in");

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
        (
            serde_json::json!({ "session": { "model": "parrot", "audio": { "output": { "speed": 9 } } } }),
            "invalid_value",
            Some("session.audio.output.speed"),
        ),
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
        let kinds = if path == "sessions" {
            ["realtime", "realtime.session"]
        } else {
            ["transcription", "realtime.transcription_session"]
        };
        assert_eq!([body["type"].as_str(), body["object"].as_str()], kinds.map(Some), "{path}");
        assert_eq!(call(&shared, key).await.status, StatusCode::CREATED);
    }
}

#[tokio::test]
async fn an_ephemeral_key_ends_its_own_calls_alone_and_who_made_it_all_of_the_tenant() {
    let shared = guarded(Allowance::default());
    let mint = async || value(&secret(&shared, APP, serde_json::json!({ "session": { "model": "parrot" } })).await);
    let (one, two) = (mint().await, mint().await);
    let made = async |key: &str| {
        let answer = call(&shared, key).await;
        answer.header("location").rsplit('/').next().unwrap().to_owned()
    };
    // Whoever owns no such call is told nothing of it.
    let hang_up = async |key: &str, call: &str| {
        let uri = format!("/v1/realtime/calls/{call}/hangup");
        let answer = ask(&shared, "POST", &uri, key, "application/json", String::new()).await;
        assert_eq!(answer.status, StatusCode::OK);
        shared.directory.sessions()
    };
    let (first, second, apps) = (made(&one).await, made(&one).await, made(APP).await);
    assert_eq!([hang_up(&two, &first).await, hang_up(&one, &apps).await, hang_up(OTHER, &first).await], [3, 3, 3]);
    assert_eq!([hang_up(&one, &first).await, hang_up(APP, &second).await, hang_up(APP, &apps).await], [2, 1, 0]);
}
