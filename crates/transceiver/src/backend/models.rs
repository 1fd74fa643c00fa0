//! The models served here, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use backends::{Backends, Route, Session};
use voice::Backend;

use super::{Monologue, Parrot, Player, Script};

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
    /// Answers in another process.
    Remote(Remote),
}

/// A model in another process, or several of which one answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Remote {
    /// Who answers.
    pub route: Route,
    /// Of the PCM between dialogue and backend, in Hz.
    pub rate: u32,
    /// It can use [`voice::BackendInput::Correction`].
    pub corrections: bool,
    /// It owns the turns: what it says is a reply until it was silent for so long. 0: it does not.
    pub duplex_silence_ms: u32,
    /// Instead of `voice.response_timeout_ms`.
    pub response_timeout_ms: Option<u32>,
}

/// Models of which one is drawn for each call, with their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice(pub Vec<(String, u32)>);

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

    /// Who answers in a call; `session`: how it is known there. `None`: `loopback`, which has no dialogue.
    pub(crate) fn open(
        &self,
        backends: Option<&Backends>,
        rate: u32,
        seed: u64,
        session: impl FnOnce() -> Session,
    ) -> Option<Box<dyn Backend>> {
        Some(match self {
            Self::Loopback => return None,
            Self::Parrot => Box::new(Parrot::new(rate)),
            Self::Monologue => Box::new(Monologue::new(rate, seed)),
            Self::Script(script) => Box::new(Player::new(script)),
            Self::Remote(remote) => {
                let seat = backends?.open(&remote.route, session());
                Box::new(if remote.corrections { seat.with_corrections() } else { seat })
            }
        })
    }

    /// It gives its audio as it happens, not ahead of its time.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        *self == Self::Loopback
    }
}

/// All of them, built in and from the config; shared.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Models(Arc<Served>);

#[derive(Debug, Default, PartialEq)]
struct Served {
    models: BTreeMap<String, Model>,
    choices: BTreeMap<String, Choice>,
}

impl Models {
    /// Those that are built in, and these. Each choice is among models that are here.
    #[must_use]
    pub fn new(models: BTreeMap<String, Model>, choices: BTreeMap<String, Choice>) -> Self {
        Self(Arc::new(Served { models, choices }))
    }

    /// Those that are built in, and these scripts.
    #[must_use]
    pub fn with_scripts(scripts: impl IntoIterator<Item = (String, Script)>) -> Self {
        Self::new(scripts.into_iter().map(|(name, script)| (name, Model::Script(script))).collect(), BTreeMap::new())
    }

    /// The model of that name, where one is to be drawn by `seed`. `None`: not served here.
    #[must_use]
    pub fn named(&self, name: &str, seed: u64) -> Option<Model> {
        let name = self.0.choices.get(name).map_or(name, |choice| choice.drawn(seed));
        Model::built_in(name).or_else(|| self.0.models.get(name).cloned())
    }

    /// The names of all.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let named = self.0.models.keys().chain(self.0.choices.keys()).cloned();
        Model::BUILT_IN.map(str::to_owned).into_iter().chain(named).collect()
    }

    /// Some answer in other processes.
    #[must_use]
    pub fn any_remote(&self) -> bool {
        self.0.models.values().any(|model| matches!(model, Model::Remote(_)))
    }
}

impl Choice {
    fn drawn(&self, seed: u64) -> &str {
        let total: u64 = self.0.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut at = seed % total.max(1);
        let drawn = self.0.iter().find(|(_, weight)| {
            let weight = u64::from(*weight);
            let here = at < weight;
            at = at.saturating_sub(weight);
            here
        });
        drawn.map_or("", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_drawn_by_their_weights() {
        let choice = Choice(vec![("parrot".to_owned(), 3), ("monologue".to_owned(), 1)]);
        let models = Models::new(BTreeMap::new(), BTreeMap::from([("either".to_owned(), choice)]));
        let drawn: Vec<_> = (0..8).filter_map(|seed| models.named("either", seed)).collect();
        let (often, seldom) = (Model::Parrot, Model::Monologue);
        let expected = [&often, &often, &often, &seldom];
        assert_eq!(drawn.iter().collect::<Vec<_>>(), [expected, expected].concat());
        assert_eq!(models.named("neither", 0), None);
    }
}
