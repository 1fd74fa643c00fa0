//! CONTRACT skeleton.
