//! Where clients put their secret.
//!
//! | form | who |
//! |---|---|
//! | `Authorization: Bearer <secret>` | everybody; RFC 9725 §4.8 |
//! | `api-key: <secret>` | clients of Azure |
//! | `Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.<secret>` | browsers, which cannot set headers on a WebSocket |

use std::fmt;

use axum::http::{HeaderMap, HeaderName, header};

/// What stands before the secret among a WebSocket's subprotocols.
pub const SUBPROTOCOL_KEY: &str = "openai-insecure-api-key.";

const API_KEY: HeaderName = HeaderName::from_static("api-key");

/// A secret that a request shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Presented(String);

impl fmt::Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Presented(..)")
    }
}

impl Presented {
    /// The secret of a request; the first form that is there counts.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let bearer = text(header::AUTHORIZATION).and_then(bearer);
        let protocols = || {
            let lists = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
            lists.flat_map(|list| list.split(',')).find_map(|item| item.trim().strip_prefix(SUBPROTOCOL_KEY))
        };
        let secret = bearer.or_else(|| text(API_KEY)).or_else(protocols)?.trim();
        (!secret.is_empty()).then(|| Self(secret.to_owned()))
    }

    /// From its text.
    #[must_use]
    pub fn new(secret: &str) -> Self {
        Self(secret.to_owned())
    }

    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

/// The scheme's name is the same in any case (RFC 9110 §11.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, secret) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[(&'static str, &'static str)]) -> Option<Presented> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, value.parse().unwrap());
        }
        Presented::of(&headers)
    }

    #[test]
    fn each_form_is_read_and_none_shows_in_debug() {
        for lines in [
            &[("authorization", "Bearer secret")][..],
            &[("authorization", "bearer  secret")],
            &[("authorization", "Basic eDp5"), ("api-key", "secret")],
            &[("sec-websocket-protocol", "realtime, openai-insecure-api-key.secret, openai-agents-sdk.0.20.0")],
            &[("sec-websocket-protocol", "realtime"), ("sec-websocket-protocol", "openai-insecure-api-key.secret")],
        ] {
            let found = of(lines).unwrap_or_else(|| panic!("{lines:?}"));
            assert_eq!(found, Presented::new("secret"), "{lines:?}");
            assert!(!format!("{found:?}").contains("secret"));
        }
    }

    #[test]
    fn an_empty_secret_is_none() {
        for lines in [&[][..], &[("authorization", "Bearer ")], &[("authorization", "Bearer")], &[("api-key", " ")]] {
            assert_eq!(of(lines), None, "{lines:?}");
        }
    }
}
