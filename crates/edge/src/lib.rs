//! The PoP daemon: workers, routing, signaling, bridging to the link.
