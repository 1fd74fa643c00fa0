//! A session against a foreign client (str0m), in virtual time.

mod audio;
mod channels;
mod closes;
mod connects;
mod discards;
mod pair;
mod paths;
mod refuses;
