//! STUN as an ICE-lite agent speaks it: what is read, what is dropped, and that another implementation agrees.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod attributes;
mod malformed;
mod oracle;
mod request;
mod responses;
mod vectors;
