//! The client-facing API dialect: events, session patching, items and responses.
