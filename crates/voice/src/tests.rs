//! What is tested from within.

mod pauses;
mod schedules;
