//! The inference-side daemon: calls, backends, admission.
