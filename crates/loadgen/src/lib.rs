//! Synthetic callers on a WebRTC stack that is not ours, with latency and speech quality reports, and a delaying proxy.
