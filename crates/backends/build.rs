//! Generates the messages between transceiver and backend, and both ends of their gRPC service, without `protoc`.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let root = "../../proto";
    let file = "fronthaul/backend/v1/backend.proto";
    println!("cargo::rerun-if-changed={root}/{file}");
    println!("cargo::rerun-if-changed=build.rs");

    let descriptors = protox::compile([file], [root])?;
    tonic_prost_build::configure().emit_rerun_if_changed(false).compile_fds(descriptors)?;
    Ok(())
}
