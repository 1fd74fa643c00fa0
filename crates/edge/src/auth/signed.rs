//! Signed tokens: JWT (RFC 7519) under a shared secret, or under keys that an issuer publishes (JWKS, RFC 7517).
//!
//! | claim | meaning |
//! |---|---|
//! | `exp` | required: the token begins no call afterwards; one that it began goes on |
//! | `nbf`, `iss`, `aud` | as in RFC 7519 §4.1; the last two have to match where the config names them |
//! | `sub` | whose calls count together; required where `max_concurrent` is named |
//! | `tenant` | 0 to 65535; 0 when left out |
//! | `max_seconds`, `max_concurrent`, `models` | limits |

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use serde::{Deserialize, Serialize};

use super::Refusal;
use super::grant::{Allowance, Grant};

/// Seconds that two clocks may differ.
const LEEWAY: u64 = 10;

/// Of keys that an issuer publishes. None of them is a secret that both sides hold: a public key taken for one would verify
/// what anybody signs with it (RFC 8725 §2.1).
const PUBLIC: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Of a shared secret.
const SHARED: [Algorithm; 3] = [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512];

/// What a token says.
#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    exp: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    #[serde(default)]
    tenant: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iss: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    aud: Option<serde_json::Value>,
    #[serde(default)]
    max_seconds: u32,
    #[serde(default)]
    max_concurrent: u32,
    #[serde(default)]
    models: Vec<String>,
}

/// Keys of an issuer.
#[derive(Debug, Default)]
pub struct Keyset(Vec<(Option<String>, DecodingKey)>);

impl Keyset {
    /// Reads a JWKS. Keys of other uses and kinds are left out.
    ///
    /// # Errors
    /// It is no JWKS, or holds no key that verifies.
    pub fn read(json: &[u8]) -> Result<Self, String> {
        let set: JwkSet = serde_json::from_slice(json).map_err(|error| format!("not a JWKS: {error}"))?;
        let public = set.keys.iter().filter(|jwk| !matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_)));
        let keys: Vec<_> =
            public.filter_map(|jwk| Some((jwk.common.key_id.clone(), DecodingKey::from_jwk(jwk).ok()?))).collect();
        if keys.is_empty() { Err("it has no RSA, EC or Ed25519 key".to_owned()) } else { Ok(Self(keys)) }
    }

    /// Keys in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that may have signed a token which names this key.
    fn named<'a>(&'a self, id: Option<&'a str>) -> impl Iterator<Item = &'a DecodingKey> {
        self.0.iter().filter(move |(own, _)| id.is_none() || own.as_deref() == id).map(|(_, key)| key)
    }
}

/// Verifies tokens.
pub struct Signed {
    secret: Option<DecodingKey>,
    keys: Keyset,
    issuer: Option<String>,
    audience: Option<String>,
}

impl std::fmt::Debug for Signed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signed").field("issuer", &self.issuer).field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl Signed {
    /// By a shared secret, if there is one, and by an issuer's keys once they are known. What is named of issuer and audience
    /// has to be that of each token.
    ///
    /// # Errors
    /// The library does not take the secret.
    pub fn new(
        secret: Option<&[u8]>,
        issuer: Option<String>,
        audience: Option<String>,
    ) -> Result<Self, jsonwebtoken::errors::Error> {
        let secret = secret.map(DecodingKey::from_secret).transpose()?;
        Ok(Self { secret, keys: Keyset::default(), issuer, audience })
    }

    pub(super) fn trust(&mut self, keys: Keyset) {
        self.keys = keys;
    }

    /// What a token grants.
    pub(super) fn judge(&self, token: &str, now: u64) -> Result<Grant, Refusal> {
        let header = decode_header(token).map_err(|_| Refusal::Unknown)?;
        let claims = if SHARED.contains(&header.alg) {
            verify(token, header.alg, self.secret.iter())?
        } else if PUBLIC.contains(&header.alg) {
            verify(token, header.alg, self.keys.named(header.kid.as_deref()))?
        } else {
            return Err(Refusal::Unknown);
        };
        self.grant(claims, now)
    }

    /// Claims are judged here, as the time is an argument.
    fn grant(&self, raw: serde_json::Value, now: u64) -> Result<Grant, Refusal> {
        let refuse = |what: String| Err(Refusal::Claims(what));
        if raw.get("nbf").and_then(serde_json::Value::as_u64).is_some_and(|from| from > now + LEEWAY) {
            return Err(Refusal::Early);
        }
        let claims: Claims = match serde_json::from_value(raw) {
            Ok(claims) => claims,
            Err(error) => return refuse(error.to_string()),
        };
        if now >= claims.exp.saturating_add(LEEWAY) {
            return Err(Refusal::Expired(now - claims.exp));
        }
        if self.issuer.is_some() && self.issuer != claims.iss {
            return refuse("its iss is not the issuer that this edge trusts".to_owned());
        }
        if let Some(audience) = &self.audience {
            // One, or a list of them (RFC 7519 §4.1.3).
            let meant = match &claims.aud {
                Some(serde_json::Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(audience)),
                one => one.as_ref().and_then(serde_json::Value::as_str) == Some(audience),
            };
            if !meant {
                return refuse("its aud is not this edge's audience".to_owned());
            }
        }
        let Claims { sub, tenant, max_seconds, max_concurrent, models, exp, .. } = claims;
        if max_concurrent != 0 && sub.is_none() {
            return refuse("max_concurrent needs a sub, whose calls are counted".to_owned());
        }
        let subject = format!("sub:{}", sub.as_deref().unwrap_or_default());
        let grant = Grant::new(tenant, &subject, Allowance { max_seconds, max_concurrent, models });
        Ok(Grant { expires: Some(exp), ..grant })
    }
}

/// Three parts of base64url with dots between them.
pub(super) fn is_token(secret: &str) -> bool {
    secret.bytes().filter(|byte| *byte == b'.').count() == 2
}

fn verify<'a>(
    token: &str,
    algorithm: Algorithm,
    keys: impl Iterator<Item = &'a DecodingKey>,
) -> Result<serde_json::Value, Refusal> {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    for key in keys {
        match decode::<serde_json::Value>(token, key, &validation) {
            Ok(decoded) => return Ok(decoded.claims),
            Err(error) if matches!(error.kind(), ErrorKind::Json(_)) => {
                return Err(Refusal::Claims("its claims are no JSON".to_owned()));
            }
            Err(_) => {}
        }
    }
    Err(Refusal::Unknown)
}

/// Signs a token under a shared secret (HS256).
///
/// # Errors
/// What the library says.
pub fn sign(
    secret: &[u8],
    subject: Option<&str>,
    tenant: u16,
    expires: u64,
    allowance: &Allowance,
    (issuer, audience): (Option<&str>, Option<&str>),
) -> Result<String, jsonwebtoken::errors::Error> {
    let claims = Claims {
        exp: expires,
        sub: subject.map(str::to_owned),
        tenant,
        iss: issuer.map(str::to_owned),
        aud: audience.map(Into::into),
        max_seconds: allowance.max_seconds,
        max_concurrent: allowance.max_concurrent,
        models: allowance.models.clone(),
    };
    encode(&Header::new(Algorithm::HS256), &claims, &EncodingKey::from_secret(secret)?)
}
