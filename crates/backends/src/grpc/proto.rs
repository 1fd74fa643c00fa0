//! The messages of `proto/fronthaul/backend/v1/backend.proto`, and both ends of its service: servers in Rust may be built on these too.

pub use generated::*;

#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    elided_lifetimes_in_paths,
    clippy::all,
    clippy::use_self,
    clippy::or_fun_call,
    clippy::cast_possible_truncation,
    reason = "generated code"
)]
mod generated {
    tonic::include_proto!("fronthaul.backend.v1");
}
