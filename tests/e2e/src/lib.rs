//! The whole road in virtual time.
