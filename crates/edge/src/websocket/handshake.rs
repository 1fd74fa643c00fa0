//! The opening handshake of a WebSocket (RFC 6455 §4.2), as far as it is ours: the HTTP server does the rest.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use axum::http::{HeaderMap, HeaderName, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::deflate;

/// The subprotocol of the API, answered when it is offered; clients that can set headers offer none.
pub const SUBPROTOCOL: &str = "realtime";

/// What stands behind the client's key (RFC 6455 §1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// How clients ask for the beta's dialect.
const BETA: HeaderName = HeaderName::from_static("openai-beta");
const BETA_SUBPROTOCOL: &str = "openai-beta.realtime-v1";

/// What the headers of a request say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handshake {
    /// `Sec-WebSocket-Accept` of the answer.
    pub accept: String,
    /// The subprotocol `realtime` was offered.
    pub subprotocol: bool,
    /// The client speaks the beta's dialect.
    pub beta: bool,
    /// The client offers permessage-deflate.
    pub deflate: bool,
}

impl Handshake {
    /// Reads the headers of a GET. `None`: it asks for no WebSocket of version 13.
    #[must_use]
    pub fn read(headers: &HeaderMap) -> Option<Self> {
        let key = headers.get(header::SEC_WEBSOCKET_KEY)?;
        let good = lists(headers, header::CONNECTION, "upgrade")
            && lists(headers, header::UPGRADE, "websocket")
            && headers.get(header::SEC_WEBSOCKET_VERSION)?.as_bytes() == b"13"
            && STANDARD.decode(key.as_bytes()).is_ok_and(|key| key.len() == 16);
        let beta =
            lists(headers, BETA, "realtime=v1") || lists(headers, header::SEC_WEBSOCKET_PROTOCOL, BETA_SUBPROTOCOL);
        let subprotocol = lists(headers, header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
        good.then(|| Self { accept: accept(key.as_bytes()), subprotocol, beta, deflate: deflate::offered(headers) })
    }
}

/// Whether a header that is a list has this item, in any case.
fn lists(headers: &HeaderMap, name: HeaderName, item: &str) -> bool {
    let values = headers.get_all(name);
    let mut items = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    items.any(|one| one.trim().eq_ignore_ascii_case(item))
}

fn accept(key: &[u8]) -> String {
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, GUID.as_bytes()].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: &[(&'static str, &'static str)]) -> Option<Handshake> {
        let mut headers = HeaderMap::new();
        let lines = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        for (name, value) in lines.iter().chain(more) {
            headers.append(*name, value.parse().unwrap());
        }
        Handshake::read(&headers)
    }

    #[test]
    fn the_example_of_the_rfc_is_accepted() {
        // RFC 6455 §1.3.
        assert_eq!(read(&[]).unwrap().accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn what_is_no_websocket_of_version_13_is_none() {
        assert_eq!(Handshake::read(&HeaderMap::new()), None);
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "8"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        assert_eq!(Handshake::read(&headers), None);
        headers.insert(header::SEC_WEBSOCKET_VERSION, "13".parse().unwrap());
        assert!(Handshake::read(&headers).is_some());
        headers.insert(header::SEC_WEBSOCKET_KEY, "c2hvcnQ=".parse().unwrap());
        assert_eq!(Handshake::read(&headers), None);
    }

    #[test]
    fn subprotocols_say_realtime_and_beta() {
        let of = |list: &'static str| {
            let read = read(&[("sec-websocket-protocol", list)]).unwrap();
            (read.subprotocol, read.beta)
        };
        assert_eq!(of("realtime, openai-insecure-api-key.secret"), (true, false));
        assert_eq!(of("openai-insecure-api-key.secret"), (false, false));
        assert_eq!(of("realtime, openai-beta.realtime-v1"), (true, true));
        assert!(read(&[("openai-beta", "realtime=v1")]).unwrap().beta);
        assert!(!read(&[("openai-beta", "assistants=v2")]).unwrap().beta);
    }
}
