//! Calls under way, of those whose number is limited.
//!
//! # Invariant
//!
//! A subject is known as long as a call of its runs, so there are never more of them than calls.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::grant::{Counted, Grant};

type Subject = (u16, Arc<str>);

/// How many calls each subject has.
#[derive(Debug, Default)]
pub struct Running {
    calls: Mutex<HashMap<Subject, u32>>,
}

impl Running {
    /// A place for one call of this grant. `None`: it, or whoever made it, has as many as may be.
    #[must_use]
    pub fn take(self: &Arc<Self>, grant: &Grant) -> Option<Held> {
        let mut held = Held { running: Arc::clone(self), tenant: grant.tenant, subjects: Vec::new() };
        for Counted { subject, most } in &grant.counted {
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            let count = calls.entry((grant.tenant, Arc::clone(subject))).or_default();
            if *count >= *most {
                return None;
            }
            *count += 1;
            drop(calls);
            held.subjects.push(Arc::clone(subject));
        }
        Some(held)
    }

    /// Subjects with calls.
    #[must_use]
    pub fn subjects(&self) -> usize {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// One call's place; given back when dropped.
pub struct Held {
    running: Arc<Running>,
    tenant: u16,
    subjects: Vec<Arc<str>>,
}

impl Held {
    /// Whether a call of this grant takes the same place.
    #[must_use]
    pub fn is_of(&self, grant: &Grant) -> bool {
        self.tenant == grant.tenant && self.subjects.iter().eq(grant.counted.iter().map(|counted| &counted.subject))
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("subjects", &self.subjects).finish_non_exhaustive()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut calls = self.running.calls.lock().unwrap_or_else(PoisonError::into_inner);
        for subject in self.subjects.drain(..) {
            if let Entry::Occupied(mut count) = calls.entry((self.tenant, subject)) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}
