//! Generates the link's messages and its gRPC service from `proto/`, without `protoc`: `protox` compiles the files to a
//! descriptor set in this process.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let root = "../../proto";
    let file = "fronthaul/link/v1/link.proto";
    println!("cargo::rerun-if-changed={root}/{file}");
    println!("cargo::rerun-if-changed=build.rs");

    let descriptors = protox::compile([file], [root])?;
    // `bytes` for utterance frames: a received payload is a view of the stream's chunk, not a copy.
    tonic_prost_build::configure()
        .bytes(".fronthaul.link.v1.UtteranceFrame.payload")
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)?;
    Ok(())
}
