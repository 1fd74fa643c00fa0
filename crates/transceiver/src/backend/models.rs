//! The models served here, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Script;

/// A model.
#[derive(Debug, Clone, PartialEq)]
pub enum Model {
    /// Says back what it heard, turn by turn.
    Parrot,
    /// Returns each packet at once.
    Loopback,
    /// Speaks all the time.
    Monologue,
    /// Plays a script.
    Script(Script),
}

impl Model {
    /// Those that need no config, by name.
    pub const BUILT_IN: [&'static str; 3] = ["parrot", "loopback", "monologue"];

    fn built_in(name: &str) -> Option<Self> {
        match name {
            "parrot" => Some(Self::Parrot),
            "loopback" => Some(Self::Loopback),
            "monologue" => Some(Self::Monologue),
            _ => None,
        }
    }

    /// It gives its audio as it happens, not ahead of its time.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        *self == Self::Loopback
    }
}

/// All of them, built in and from the config; shared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Models(Arc<BTreeMap<String, Model>>);

impl Models {
    /// Those that are built in, and these scripts.
    #[must_use]
    pub fn with_scripts(scripts: impl IntoIterator<Item = (String, Script)>) -> Self {
        Self(Arc::new(scripts.into_iter().map(|(name, script)| (name, Model::Script(script))).collect()))
    }

    /// The model of that name. `None`: not served here.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Model> {
        Model::built_in(name).or_else(|| self.0.get(name).cloned())
    }

    /// The names of all.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        Model::BUILT_IN.map(str::to_owned).into_iter().chain(self.0.keys().cloned()).collect()
    }
}
