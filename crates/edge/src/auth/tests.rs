//! Who is let in, and with what.

use std::sync::Arc;

use link::route::RouteKeys;
use serde_json::json;

use super::*;

const NOW: u64 = 1_790_000_000;
const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

fn routes() -> RouteKeys {
    RouteKeys::from_secret(&[1; 32])
}

fn judge(auth: &Auth, secret: &str) -> Result<Grant, Refusal> {
    auth.judge(Some(&Presented::new(secret)), &routes(), NOW)
}

fn allowance(max_seconds: u32, max_concurrent: u32, models: &[&str]) -> Allowance {
    Allowance { max_seconds, max_concurrent, models: models.iter().map(|&model| model.to_owned()).collect() }
}

fn signing(issuer: Option<&str>, audience: Option<&str>) -> Auth {
    let signed = Signed::new(Some(SECRET), issuer.map(str::to_owned), audience.map(str::to_owned)).unwrap();
    Auth::new(false, Vec::new(), Some(signed))
}

fn token(expires: u64, allowance: &Allowance) -> String {
    sign(SECRET, Some("ada"), 7, expires, allowance, (None, None)).unwrap()
}

/// With any claims.
fn raw(claims: &serde_json::Value) -> String {
    let key = jsonwebtoken::EncodingKey::from_secret(SECRET).unwrap();
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), claims, &key).unwrap()
}

#[test]
fn an_api_key_grants_what_the_config_says_and_another_text_nothing() {
    let grant = Grant::new(7, "key:app", allowance(60, 2, &["parrot"]));
    let auth = Auth::new(false, vec![ApiKey::of_text("0123456789abcdef", grant.clone())], None);
    assert_eq!(judge(&auth, "0123456789abcdef"), Ok(grant));
    assert_eq!(judge(&auth, "0123456789abcdeg"), Err(Refusal::Unknown));
    assert_eq!(auth.judge(None, &routes(), NOW), Err(Refusal::Missing));
    assert!(!format!("{auth:?}").contains("0123456789abcdef"));
}

#[test]
fn an_open_edge_lets_in_whoever_shows_nothing_or_what_it_does_not_know() {
    let auth = Auth::open();
    assert_eq!(auth.judge(None, &routes(), NOW), Ok(Grant::open()));
    for secret in ["not-needed", "ek_not-needed"] {
        assert_eq!(judge(&auth, secret), Ok(Grant::open()), "SDKs insist on a key");
    }
}

#[test]
fn an_open_edge_keeps_to_what_an_ephemeral_key_says() {
    let terms = Terms { expires: NOW + 10, allowance: allowance(15, 0, &[]), preset: None };
    let key = Grant::open().mint(&routes(), [1; 12], &terms).value;
    assert_eq!(judge(&Auth::open(), &key).unwrap().max_seconds, 15);
    let late = Auth::open().judge(Some(&Presented::new(&key)), &routes(), NOW + 10);
    assert_eq!(late, Err(Refusal::Expired(0)));
}

#[test]
fn a_token_grants_what_it_says_until_it_expires() {
    let auth = signing(None, None);
    let limits = allowance(60, 2, &["parrot"]);
    assert_eq!(
        judge(&auth, &token(NOW + 1, &limits)),
        Ok(Grant { expires: Some(NOW + 1), ..Grant::new(7, "sub:ada", limits.clone()) })
    );
    // Two clocks may differ by 10 s.
    assert!(judge(&auth, &token(NOW - 9, &limits)).is_ok());
    assert_eq!(judge(&auth, &token(NOW - 10, &limits)), Err(Refusal::Expired(10)));
}

#[test]
fn a_token_of_another_secret_algorithm_or_text_is_unknown() {
    let auth = signing(None, None);
    let good = token(NOW + 60, &Allowance::default());
    let forged = sign(&[9; 32], None, 0, NOW + 60, &Allowance::default(), (None, None)).unwrap();
    // {"alg":"none"}
    let none = format!("eyJhbGciOiJub25lIn0.{}.", good.split('.').nth(1).unwrap());
    let mut changed = good.clone();
    changed.replace_range(good.len() - 1.., if good.ends_with('A') { "E" } else { "A" });
    for secret in [forged.as_str(), &none, &changed, "a.b.c", "..", &good[..good.len() - 4]] {
        assert_eq!(judge(&auth, secret), Err(Refusal::Unknown), "{secret}");
    }
    assert!(judge(&auth, &good).is_ok());
}

#[test]
fn claims_that_do_not_fit_are_named() {
    let auth = signing(Some("https://issuer.example"), Some("voice"));
    let claims = |more: serde_json::Value| {
        let mut claims =
            json!({ "exp": NOW + 60, "iss": "https://issuer.example", "aud": ["x", "voice"], "sub": "ada" });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        raw(&claims)
    };
    assert!(judge(&auth, &claims(json!({}))).is_ok());
    assert_eq!(judge(&auth, &claims(json!({ "nbf": NOW + 11 }))), Err(Refusal::Early));
    for (more, part) in [
        (json!({ "iss": "https://other.example" }), "iss"),
        (json!({ "aud": "other" }), "aud"),
        (json!({ "aud": null }), "aud"),
        (json!({ "exp": null }), "exp"),
        (json!({ "tenant": 70_000 }), "70000"),
        (json!({ "sub": null, "max_concurrent": 1 }), "sub"),
    ] {
        let Err(Refusal::Claims(what)) = judge(&auth, &claims(more.clone())) else { panic!("{more}") };
        let told = if part == "exp" { "null" } else { part };
        assert!(what.contains(told), "{more}: {what}");
    }
}

#[test]
fn keys_of_an_issuer_verify_and_a_shared_secret_among_them_does_not() {
    let oct = json!({ "keys": [{ "kty": "oct", "k": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY" }] }).to_string();
    assert!(Keyset::read(oct.as_bytes()).is_err());
    assert!(Keyset::read(b"{}").is_err());
    // The key of RFC 8037 appendix A.
    let private = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";
    let public = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "kid": "one", "alg": "EdDSA", "x": public }] });
    let auth = Auth::new(false, Vec::new(), Some(Signed::new(None, None, None).unwrap()));
    let seed = base64::Engine::decode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, private).unwrap();
    // RFC 8410 §7: a key of 32 bytes in PKCS #8.
    let der = [&[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20][..], &seed].concat();
    let key = jsonwebtoken::EncodingKey::from_ed_der(&der);
    let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::EdDSA);
    header.kid = Some("one".to_owned());
    let token = jsonwebtoken::encode(&header, &json!({ "exp": NOW + 60, "sub": "ada" }), &key).unwrap();
    assert_eq!(judge(&auth, &token), Err(Refusal::Unknown), "nobody is trusted yet");
    auth.trust(Keyset::read(set.to_string().as_bytes()).unwrap());
    assert_eq!(
        judge(&auth, &token),
        Ok(Grant { expires: Some(NOW + 60), ..Grant::new(0, "sub:ada", Allowance::default()) })
    );
    header.kid = Some("two".to_owned());
    let other = jsonwebtoken::encode(&header, &json!({ "exp": NOW + 60 }), &key).unwrap();
    assert_eq!(judge(&auth, &other), Err(Refusal::Unknown), "it names a key that is not there");
}

#[test]
fn an_ephemeral_key_grants_no_more_than_who_made_it() {
    let owner = Grant::new(7, "key:app", allowance(60, 2, &["parrot", "echo"]));
    let terms = |allowance| Terms { expires: NOW + 10, allowance, preset: Some(r#"{"model":"parrot"}"#) };
    let open = |made: Minted| judge(&Auth::default(), &made.value).unwrap();
    let same = open(owner.mint(&routes(), [1; 12], &terms(Allowance::default())));
    let expected = Grant {
        subject: Arc::from("ek:010101010101010101010101"),
        preset: Some(r#"{"model":"parrot"}"#.to_owned()),
        mints: false,
        expires: Some(NOW + 10),
        ..owner.clone()
    };
    assert_eq!(same, expected);
    let less = open(owner.mint(&routes(), [2; 12], &terms(allowance(15, 1, &["echo"]))));
    assert_eq!((less.max_seconds, less.allows("echo"), less.allows("parrot")), (15, true, false));
    assert_eq!(less.counted.iter().map(|counted| counted.most).collect::<Vec<_>>(), [2, 1]);
    let more = open(owner.mint(&routes(), [3; 12], &terms(allowance(600, 9, &["oracle"]))));
    assert_eq!((more.max_seconds, more.allows("oracle"), more.allows("echo")), (60, false, false));
}

#[test]
fn an_ephemeral_key_ends_with_the_token_that_it_was_made_of() {
    let holder = judge(&signing(None, None), &token(NOW + 5, &Allowance::default())).unwrap();
    let terms = |expires| Terms { expires, allowance: Allowance::default(), preset: None };
    for (asked, expires) in [(NOW + 7200, NOW + 5), (NOW + 2, NOW + 2)] {
        let made = holder.mint(&routes(), [1; 12], &terms(asked));
        assert_eq!(made.expires, expires);
        let late = Auth::default().judge(Some(&Presented::new(&made.value)), &routes(), expires);
        assert_eq!(late, Err(Refusal::Expired(0)));
    }
}

#[test]
fn calls_at_once_are_counted_for_the_key_and_for_who_made_it() {
    let running = Arc::new(Running::default());
    let owner = Grant::new(7, "key:app", allowance(0, 2, &[]));
    let one = owner.narrowed("ek:1", &allowance(0, 1, &[]));
    let two = owner.narrowed("ek:2", &allowance(0, 5, &[]));
    let first = running.take(&one).unwrap();
    assert!(running.take(&one).is_none(), "its own limit");
    let second = running.take(&two).unwrap();
    assert!(running.take(&two).is_none() && running.take(&owner).is_none(), "its maker's limit");
    let elsewhere = Grant { tenant: 8, ..owner.clone() };
    assert!(running.take(&elsewhere).is_some(), "another tenant's key of the same name");
    drop(first);
    assert!(running.take(&two).is_some());
    drop(second);
    assert_eq!(running.subjects(), 0);
}
