//! The one binary of Fronthaul.

fn main() {}
