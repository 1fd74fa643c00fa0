//! An ICE password, kept out of logs.
//!
//! It is the key of every check's MESSAGE-INTEGRITY (RFC 8445 §7.1.2) and, for a ticket, what proves its holder. So it has no
//! `Display`, its `Debug` output says nothing, and it leaves through [`Password::expose`] alone.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;

/// `a=ice-pwd` of one side.
#[derive(Clone)]
pub struct Password(String);

impl Password {
    /// The text: for a description that goes to the client, or for a key.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Password {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// In a time that tells nothing but whether the lengths differ.
impl PartialEq for Password {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), other.0.as_bytes()).is_ok()
    }
}

impl Eq for Password {}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}
