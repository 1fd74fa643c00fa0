//! A seeded virtual network and clock.
