//! HTTPS to the authority, as its library asks for it: an order takes some twenty requests, a few times a year.

use std::future::Future;
use std::pin::Pin;

use axum::body::Bytes;
use axum::http::Request;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use crate::shell::https::Https;

type Answer = Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>>;

impl HttpClient for Https {
    fn request(&self, request: Request<BodyWrapper<Bytes>>) -> Answer {
        let client = self.clone();
        Box::pin(async move {
            let (parts, body) = client.ask(request).await.map_err(Error::Other)?;
            Ok(BytesResponse { parts, body: Box::new(body) })
        })
    }
}
