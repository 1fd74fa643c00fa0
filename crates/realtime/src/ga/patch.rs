//! Deep patches: an absent field keeps its value, `null` turns it off (or asks for the default where there is nothing to
//! turn off), anything else replaces it, and objects are patched member by member.

use serde_json::{Map, Value};

/// One field of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patch<T> {
    /// Keep it.
    Absent,
    /// Off, or the default.
    Null,
    /// Replace it.
    Value(T),
}

impl Patch<Value> {
    /// Takes a field out of an object.
    pub(crate) fn take(fields: &mut Map<String, Value>, name: &str) -> Self {
        fields.remove(name).map_or(Self::Absent, Self::from)
    }
}

impl From<Value> for Patch<Value> {
    fn from(value: Value) -> Self {
        if value.is_null() { Self::Null } else { Self::Value(value) }
    }
}

impl<T> Patch<T> {
    /// The field as it is behind the patch.
    pub(crate) fn over(self, kept: T, off: T) -> T {
        match self {
            Self::Absent => kept,
            Self::Null => off,
            Self::Value(value) => value,
        }
    }

    /// Where absent and `null` are the same.
    pub(crate) fn value(self) -> Option<T> {
        match self {
            Self::Absent | Self::Null => None,
            Self::Value(value) => Some(value),
        }
    }

    /// Reads the value, if there is one.
    pub(crate) fn read<U, E>(self, read: impl FnOnce(T) -> Result<U, E>) -> Result<Patch<U>, E> {
        Ok(match self {
            Self::Absent => Patch::Absent,
            Self::Null => Patch::Null,
            Self::Value(value) => Patch::Value(read(value)?),
        })
    }
}

/// How one field takes a patch; by default `null` is kept as such and objects are patched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    /// It cannot be off: `null` asks for the default.
    pub(crate) always: bool,
    /// An object is one value: what the former one had and the next has not is gone.
    pub(crate) whole: bool,
}

/// Patches an object. `path` is the JSON pointer of it; `rule` says what holds for a field, `special` takes over where it
/// returns `true`.
pub(crate) struct Patcher<'a, R, S> {
    pub(crate) defaults: &'a Value,
    pub(crate) rule: R,
    pub(crate) special: S,
}

impl<R, S> Patcher<'_, R, S>
where
    R: Fn(&str) -> Rule,
    S: Fn(&str, &mut Value, &Map<String, Value>) -> bool,
{
    /// Patches one field.
    pub(crate) fn apply(&self, target: &mut Value, patch: Patch<Value>, path: &str) {
        let rule = (self.rule)(path);
        match patch {
            Patch::Absent => {}
            Patch::Null if rule.always => *target = self.defaults.pointer(path).cloned().unwrap_or(Value::Null),
            Patch::Null => *target = Value::Null,
            Patch::Value(Value::Object(fields)) => {
                if (self.special)(path, target, &fields) {
                    return;
                }
                match target {
                    Value::Object(target) if !rule.whole => {
                        for (name, value) in fields {
                            let path = format!("{path}/{name}");
                            self.apply(target.entry(name).or_insert(Value::Null), value.into(), &path);
                        }
                    }
                    target => *target = Value::Object(fields),
                }
            }
            Patch::Value(value) => *target = value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patched(target: Value, patch: Value) -> Value {
        let defaults = json!({"a": 1, "w": {}});
        let rule = |path: &str| Rule { always: path == "/a", whole: path == "/w" };
        let patcher = Patcher { defaults: &defaults, rule, special: |_: &str, _: &mut Value, _: &Map<_, _>| false };
        let mut target = target;
        patcher.apply(&mut target, patch.into(), "");
        target
    }

    #[test]
    fn absent_keeps_null_turns_off_or_back_and_values_replace() {
        let target = json!({"a": 5, "b": {"c": 1, "d": [1, 2]}, "e": "x"});
        assert_eq!(patched(target.clone(), json!({})), target);
        let patch = json!({"a": null, "b": {"d": [], "f": false}, "e": null, "new": {"g": null}});
        let expected = json!({"a": 1, "b": {"c": 1, "d": [], "f": false}, "e": null, "new": {"g": null}});
        assert_eq!(patched(target, patch), expected);
    }

    #[test]
    fn an_object_over_something_else_replaces_it_and_so_does_one_that_is_whole() {
        let target = json!({"b": 3, "w": {"rate": 24000, "type": "x"}});
        let patch = json!({"b": {"c": 1}, "w": {"type": "y"}});
        assert_eq!(patched(target, patch), json!({"b": {"c": 1}, "w": {"type": "y"}}));
    }
}
