//! STUN and TURN servers that clients are told of, each with credentials of its own for the call.
//!
//! A TURN server with a shared secret takes any username `<expiry>:<anything>` whose password is
//! base64(HMAC-SHA1(secret, username)), as long as the expiry, in Unix seconds, lies ahead (draft-uberti-behave-turn-rest).
//! So nothing that a page can read opens the server for longer than that, and nobody keeps a list of users.

use std::fmt;

use aws_lc_rs::hmac;
use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::Rng;
use serde::Serialize;

use crate::config::IceServer;

/// The servers of the config.
#[derive(Default)]
pub struct IceServers(Vec<Server>);

struct Server {
    urls: Vec<String>,
    access: Access,
}

enum Access {
    /// STUN, which asks for none.
    Open,
    Fixed {
        username: String,
        credential: String,
    },
    Ephemeral {
        secret: Box<hmac::Key>,
        lifetime_s: u32,
    },
}

/// One server, as `RTCIceServer` of the W3C's API has it.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Granted {
    /// Where it is.
    pub urls: Vec<String>,
    /// For TURN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// For TURN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

/// Without the credential.
impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { urls, username, credential: _ } = self;
        f.debug_struct("Granted").field("urls", urls).field("username", username).finish_non_exhaustive()
    }
}

impl IceServers {
    /// Those of the config.
    ///
    /// # Errors
    /// A variable of the environment that is not set.
    pub fn new(servers: &[IceServer]) -> Result<Self, String> {
        let server = |server: &IceServer| {
            let (secret, credential) = (server.secret.reveal()?, server.credential.reveal()?);
            let access = if !secret.is_empty() {
                let secret = Box::new(hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret.as_bytes()));
                Access::Ephemeral { secret, lifetime_s: server.lifetime_s }
            } else if !credential.is_empty() {
                Access::Fixed { username: server.username.clone(), credential }
            } else {
                Access::Open
            };
            Ok(Server { urls: server.urls.clone(), access })
        };
        Ok(Self(servers.iter().map(server).collect::<Result<_, String>>()?))
    }

    /// The servers for one call.
    pub fn grant(&self, unix_seconds: u32, rng: &mut impl Rng) -> Vec<Granted> {
        let grant = |server: &Server| {
            let (username, credential) = match &server.access {
                Access::Open => (None, None),
                Access::Fixed { username, credential } => (Some(username.clone()), Some(credential.clone())),
                Access::Ephemeral { secret, lifetime_s } => {
                    // Of no call: the server's operator need not learn an id that ends it.
                    let username = format!("{}:{:016x}", unix_seconds.saturating_add(*lifetime_s), rng.next_u64());
                    let credential = STANDARD.encode(hmac::sign(secret, username.as_bytes()));
                    (Some(username), Some(credential))
                }
            };
            Granted { urls: server.urls.clone(), username, credential }
        };
        self.0.iter().map(grant).collect()
    }
}

/// RFC 9725 §4.6: a `Link` header for each URL.
pub(super) fn link_headers(granted: &[Granted]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for server in granted {
        for url in &server.urls {
            let mut link = format!("<{url}>; rel=\"ice-server\"");
            if let (Some(username), Some(credential)) = (&server.username, &server.credential) {
                let (username, credential) = (quoted(username), quoted(credential));
                link += &format!("; username={username}; credential={credential}; credential-type=\"password\"");
            }
            // What no header can say is left out.
            if let Ok(value) = HeaderValue::from_str(&link) {
                headers.append(header::LINK, value);
            }
        }
    }
    headers
}

/// A quoted-string (RFC 9110 §5.6.4).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;
    use crate::config::Secret;

    fn server(url: &str, secret: &str, username: &str, credential: &str) -> IceServer {
        IceServer {
            urls: vec![url.to_owned()],
            secret: Secret::new(secret),
            username: username.to_owned(),
            credential: Secret::new(credential),
            lifetime_s: 3600,
        }
    }

    fn grant(servers: &[IceServer]) -> Vec<Granted> {
        IceServers::new(servers).unwrap().grant(1_790_000_000, &mut StdRng::seed_from_u64(7))
    }

    #[test]
    fn a_shared_secret_gives_each_call_a_password_that_expires() {
        let servers = [server("turns:turn.example.com:5349?transport=tcp", "north", "", "")];
        let first = grant(&servers).remove(0);
        let username = first.username.unwrap();
        let (expiry, tag) = username.split_once(':').unwrap();
        assert_eq!((expiry, tag.len()), ("1790003600", 16));
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, b"north");
        let password = STANDARD.decode(first.credential.unwrap()).unwrap();
        assert!(hmac::verify(&key, username.as_bytes(), &password).is_ok());
        let mut rng = StdRng::seed_from_u64(8);
        assert_ne!(IceServers::new(&servers).unwrap().grant(1_790_000_000, &mut rng)[0].username, Some(username));
    }

    #[test]
    fn links_say_it_as_whip_does() {
        let granted = grant(&[
            server("stun:stun.example.net", "", "", ""),
            server("turn:turn.example.net?transport=udp", "", "user \"one\"", "myPassword"),
        ]);
        let headers = link_headers(&granted);
        let links: Vec<_> = headers.get_all(header::LINK).iter().map(|link| link.to_str().unwrap()).collect();
        assert_eq!(
            links,
            [
                "<stun:stun.example.net>; rel=\"ice-server\"",
                "<turn:turn.example.net?transport=udp>; rel=\"ice-server\"; username=\"user \\\"one\\\"\"; \
                 credential=\"myPassword\"; credential-type=\"password\"",
            ]
        );
    }

    #[test]
    fn the_browsers_form_leaves_out_what_there_is_not() {
        let granted = grant(&[server("stun:stun.example.net", "", "", "")]);
        assert_eq!(serde_json::to_string(&granted).unwrap(), r#"[{"urls":["stun:stun.example.net"]}]"#);
    }
}
