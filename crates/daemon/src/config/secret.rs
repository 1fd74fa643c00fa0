//! Text of a config that no log shows.

use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

/// Text that no log shows.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// From its text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text, from the environment where it says so.
    ///
    /// # Errors
    /// The name of the variable that is not set.
    pub fn reveal(&self) -> Result<String, String> {
        match self.0.strip_prefix("env:") {
            Some(name) => std::env::var(name).map_err(|_| name.to_owned()),
            None => Ok(self.0.clone()),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "\"...\"" })
    }
}

/// What is written of a config is read by anybody.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0.is_empty() { "" } else { "..." })
    }
}
