//! A session against a foreign client (str0m), in virtual time.

#![expect(clippy::unwrap_used, reason = "the pair's own functions are as much a test as its users")]

mod audio;
mod channels;
mod closes;
mod connects;
mod discards;
mod pair;
mod paths;
mod refuses;
#[path = "../stun/request.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod request;
mod snap;
mod sped;
mod sped_client;
