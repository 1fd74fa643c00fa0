//! Offers as browsers and others make them, and the answers to them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod browsers;
mod bundle;
mod candidates;
mod codecs;
mod extensions;
mod facts;
mod hostile;
mod interop;
mod offers;
mod redacted;
mod renew;
mod rules;
mod sctp;
mod transport;
