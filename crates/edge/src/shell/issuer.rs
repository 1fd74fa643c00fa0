//! The keys of who issues tokens: a file, or an address that is asked.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use tokio::time::sleep;

use super::https::Https;
use crate::auth::Keyset;
use crate::config::AuthConfig;
use crate::signaling::Shared;

/// Between two looks: an issuer shows a key some hours before it signs with it.
const AGAIN: Duration = Duration::from_secs(600);

/// Between two looks as long as none was good: until then no token is.
const FIRST: Duration = Duration::from_secs(5);

/// Where they are.
pub(super) enum Issuer {
    File(PathBuf),
    Url(String, Https),
}

impl Issuer {
    /// What the config names. `None`: nothing.
    pub(super) fn of(config: &AuthConfig) -> io::Result<Option<Self>> {
        Ok(match config.jwks.as_str() {
            "" => None,
            url if url.starts_with("https://") => {
                Some(Self::Url(url.to_owned(), Https::trusting("auth.jwks_roots", &config.jwks_roots)?))
            }
            file => Some(Self::File(PathBuf::from(file))),
        })
    }

    async fn read(&self) -> Result<Keyset, String> {
        match self {
            Self::File(file) => Keyset::read(&std::fs::read(file).map_err(|error| error.to_string())?),
            Self::Url(url, client) => {
                let request = Request::get(url).body(Body::empty()).map_err(|error| error.to_string())?;
                let (parts, body) = client.ask(request).await.map_err(|error| error.to_string())?;
                if parts.status != StatusCode::OK {
                    return Err(format!("it was answered {}", parts.status));
                }
                Keyset::read(&body)
            }
        }
    }
}

/// Has tokens verified by the keys that are there now, for as long as the runtime lives.
pub(super) async fn watch(issuer: Issuer, place: String, shared: Arc<Shared>) -> io::Result<()> {
    let mut again = FIRST;
    loop {
        match issuer.read().await {
            Ok(keys) => {
                tracing::info!(keys = keys.len(), "tokens are verified by the keys of {place}");
                shared.auth.trust(keys);
                again = AGAIN;
            }
            Err(error) => tracing::warn!(error, "auth.jwks {place}: no keys were read; the former ones stay"),
        }
        sleep(again).await;
    }
}
