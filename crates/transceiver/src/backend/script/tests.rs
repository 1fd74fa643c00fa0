//! Scripts as they are written, and what is played of them, in virtual time.

mod format;
mod player;
