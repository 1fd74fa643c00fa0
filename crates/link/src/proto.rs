//! Messages and the gRPC service of `proto/fronthaul/link/v1/link.proto`, generated at build time.
//!
//! The words beside each field are in that file; its compatibility rules are in `proto/README.md`.

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
    include!(concat!(env!("OUT_DIR"), "/fronthaul.link.v1.rs"));
}
