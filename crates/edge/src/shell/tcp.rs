//! WebRTC over TCP: letting connections in, and serving them on the thread of the worker that owns their session.

mod admission;
mod connection;

pub(super) use admission::Admission;
pub(super) use connection::{Connections, serve};
