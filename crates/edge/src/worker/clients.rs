//! The sessions of one worker, in slots that are used again.

use super::client::Client;

/// A session's place. The generation tells a session from a later one in the same place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

#[derive(Default)]
struct Place {
    generation: u32,
    client: Option<Box<Client>>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Clients {
    places: Vec<Place>,
    free: Vec<u32>,
    len: usize,
}

impl Clients {
    /// Gives a session a place.
    pub(crate) fn insert(&mut self, client: Box<Client>) -> Key {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let place = &mut self.places[at(index)];
        place.client = Some(client);
        self.len += 1;
        Key { index, generation: place.generation }
    }

    /// The session there, if it is still the same.
    pub(crate) fn get(&self, key: Key) -> Option<&Client> {
        let place = self.places.get(at(key.index))?;
        place.client.as_deref().filter(|_| place.generation == key.generation)
    }

    /// The session there, if it is still the same.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Client> {
        let place = self.places.get_mut(at(key.index))?;
        if place.generation == key.generation { place.client.as_deref_mut() } else { None }
    }

    /// Takes a session out.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Box<Client>> {
        let place = self.places.get_mut(at(key.index)).filter(|p| p.generation == key.generation)?;
        let client = place.client.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(key.index);
        self.len -= 1;
        Some(client)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Their keys, in order.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let taken = self.places.iter().enumerate().filter(|(_, place)| place.client.is_some());
        taken
            .map(|(index, place)| Key { index: u32::try_from(index).unwrap_or(u32::MAX), generation: place.generation })
            .collect()
    }

    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Client> {
        self.places.iter().filter_map(|place| place.client.as_deref())
    }
}

/// Every supported target has pointers of 32 bits or more.
fn at(index: u32) -> usize {
    index as usize
}
