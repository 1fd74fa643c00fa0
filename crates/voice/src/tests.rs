//! The whole conversation under orders of events that nobody would write down.

mod schedules;
