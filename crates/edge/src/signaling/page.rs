//! The page, carried inside the binary: `page/index.html` at `/`, every other file at `/assets/`. The client module stands at
//! `/fronthaul.js` with its types beside it, for pages of any origin.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::create::Shared;
use super::error::ApiError;

/// Path below `page/`, content.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

pub(crate) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/", get(async || file("index.html")))
        .route("/fronthaul.js", get(async || module("fronthaul.js")))
        .route("/fronthaul.d.ts", get(async || module("fronthaul.d.ts")))
        .route("/assets/{*name}", get(async |Path(name): Path<String>| file(&name)))
}

/// A file that pages of other origins load too, those that isolate themselves (`Cross-Origin-Embedder-Policy`) included.
fn module(name: &str) -> Response {
    ([(HeaderName::from_static("cross-origin-resource-policy"), "cross-origin")], file(name)).into_response()
}

fn file(name: &str) -> Response {
    // A folder `page/assets` serves as well as files beside the index.
    let found = FILES.iter().find(|(path, _)| *path == name || path.strip_prefix("assets/") == Some(name));
    let Some((path, content)) = found else {
        return ApiError::not_found("unknown_url", format!("The page has no file {name:?}.")).into_response();
    };
    // Revalidated each time: the files are small, and a page that is older than its edge would mislead.
    let headers = [
        (header::CONTENT_TYPE, content_type(path)),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (StatusCode::OK, headers, *content).into_response()
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        // For reading: compilers take it whatever it is called, and its registered type is a video's.
        Some("ts") => "text/plain; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("ico") => "image/x-icon",
        Some("json" | "webmanifest") => "application/json",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}
