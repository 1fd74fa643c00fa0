//! The conversation's items, in order, as the JSON that clients are shown.
//!
//! Invariant: ids are unique, at most [`MAX_ITEMS`] and [`MAX_ITEMS_BYTES`] are kept; what is beyond is forgotten oldest first
//! and can be retrieved no more.

use std::collections::VecDeque;

use serde_json::Value;

use crate::limits::{MAX_ITEMS, MAX_ITEMS_BYTES};

/// Where an item goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place<'a> {
    /// Behind all.
    End,
    /// Ahead of all.
    Begin,
    /// Behind that one.
    Behind(&'a str),
}

/// One item.
#[derive(Debug)]
struct Entry {
    id: String,
    /// Text, because a parsed value takes up to twenty times as much.
    json: String,
    /// It has sound of the model's, so much of it as is known.
    spoken_ms: Option<u64>,
}

impl Entry {
    fn bytes(&self) -> usize {
        self.id.len() + self.json.len()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Items {
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Items {
    /// Adds an item that is not there yet; the one it stands behind. `Err`: there is no such place.
    pub(crate) fn insert(&mut self, place: Place<'_>, id: &str, item: &Value) -> Result<Option<String>, ()> {
        let index = match place {
            Place::End => self.entries.len(),
            Place::Begin => 0,
            Place::Behind(previous) => self.position(previous).ok_or(())? + 1,
        };
        let previous = index.checked_sub(1).map(|previous| self.entries[previous].id.clone());
        let entry = Entry { id: id.to_owned(), json: item.to_string(), spoken_ms: None };
        self.bytes += entry.bytes();
        self.entries.insert(index, entry);
        self.forget(index);
        Ok(previous)
    }

    /// The item as it is from now on; one that was deleted meanwhile stays so.
    pub(crate) fn replace(&mut self, id: &str, item: &Value) {
        if let Some(index) = self.position(id) {
            let entry = &mut self.entries[index];
            self.bytes -= entry.bytes();
            entry.json = item.to_string();
            self.bytes += entry.bytes();
            self.forget(index);
        }
    }

    /// It has so much sound of the model's.
    pub(crate) fn set_spoken(&mut self, id: &str, ms: u64) {
        if let Some(index) = self.position(id) {
            self.entries[index].spoken_ms = Some(ms);
        }
    }

    pub(crate) fn spoken_ms(&self, id: &str) -> Option<u64> {
        self.entries[self.position(id)?].spoken_ms
    }

    pub(crate) fn get(&self, id: &str) -> Option<Value> {
        serde_json::from_str(&self.entries[self.position(id)?].json).ok()
    }

    /// Of the item, as text; 0 if there is none.
    pub(crate) fn bytes_of(&self, id: &str) -> usize {
        self.position(id).map_or(0, |index| self.entries[index].bytes())
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.position(id).is_some()
    }

    /// `false`: there is none of that id.
    pub(crate) fn remove(&mut self, id: &str) -> bool {
        let removed = self.position(id).and_then(|index| self.entries.remove(index));
        self.bytes -= removed.as_ref().map_or(0, Entry::bytes);
        removed.is_some()
    }

    /// Of all items, as text.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The oldest but that one, which was told a moment ago.
    fn forget(&mut self, mut newest: usize) {
        while self.entries.len() > MAX_ITEMS || self.bytes > MAX_ITEMS_BYTES {
            let oldest = usize::from(newest == 0);
            let Some(forgotten) = self.entries.remove(oldest) else { return };
            self.bytes -= forgotten.bytes();
            newest = newest.saturating_sub(1);
        }
    }

    /// From the end, where items that are asked for are.
    fn position(&self, id: &str) -> Option<usize> {
        self.entries.iter().rposition(|entry| entry.id == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_item_at_the_beginning_of_a_full_conversation_is_kept() {
        let mut items = Items::default();
        for n in 0..MAX_ITEMS {
            items.insert(Place::End, &n.to_string(), &json!(n)).unwrap();
        }
        items.insert(Place::Begin, "first", &json!("first")).unwrap();
        assert_eq!([items.contains("first"), items.contains("0"), items.contains("1")], [true, false, true]);
        items.insert(Place::End, "last", &json!("last")).unwrap();
        assert_eq!([items.contains("first"), items.contains("1"), items.contains("last")], [false, true, true]);
    }

    #[test]
    fn items_stand_where_they_were_put() {
        let mut items = Items::default();
        assert_eq!(items.insert(Place::End, "a", &json!(1)), Ok(None));
        assert_eq!(items.insert(Place::End, "c", &json!(3)), Ok(Some("a".to_owned())));
        assert_eq!(items.insert(Place::Behind("a"), "b", &json!(2)), Ok(Some("a".to_owned())));
        assert_eq!(items.insert(Place::Begin, "z", &json!(0)), Ok(None));
        assert_eq!(items.insert(Place::Behind("x"), "d", &json!(4)), Err(()));
        assert!(items.remove("c") && !items.remove("c"));
        assert_eq!(items.insert(Place::End, "e", &json!(5)), Ok(Some("b".to_owned())));
        assert_eq!(items.bytes(), 8);
    }

    #[test]
    fn the_oldest_are_forgotten_by_number_and_by_size() {
        let mut items = Items::default();
        for n in 0..=MAX_ITEMS {
            items.insert(Place::End, &n.to_string(), &json!({})).unwrap();
        }
        assert!(!items.contains("0") && items.contains("1"));
        let large = json!("x".repeat(MAX_ITEMS_BYTES / 2));
        items.insert(Place::End, "y", &large).unwrap();
        items.insert(Place::End, "z", &json!(0)).unwrap();
        items.replace("z", &large);
        assert!(!items.contains("y") && items.get("z") == Some(large));
        assert!(items.bytes() <= MAX_ITEMS_BYTES);
    }
}
