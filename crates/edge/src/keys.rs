//! The keys of the PoP in the form in which signaling and workers use them, and how they are renewed while they run.
//!
//! [`PopKeys`] is one immutable set, cheap to clone. Signaling takes the current one from the [`Keyring`] for each call; each
//! worker holds its own clone and is sent the next one through its mailbox, so the media path takes no lock for it.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

pub use link::identity::IdentityError;
pub use link::identity::keys::{Found, KeySet, KeySource, PopKey, RotateError};
use link::route::{KEY_SLOTS, RouteKeys, key_id};

/// One set of keys.
#[derive(Clone)]
pub struct PopKeys {
    inner: Arc<Inner>,
}

struct Inner {
    route: RouteKeys,
    /// By key id.
    identities: [Option<rtc::Identity>; KEY_SLOTS],
    /// Unix seconds of the making of the key that signs.
    made: u32,
}

impl PopKeys {
    /// What a key set says at this time.
    ///
    /// # Errors
    /// Which key has no sound certificate.
    pub fn new(set: &KeySet, now: u32) -> Result<Self, String> {
        let mut identities = [const { None }; KEY_SLOTS];
        for key in set.keys() {
            let identity = rtc::Identity::from_der(key.certificate(), key.private_key())
                .map_err(|error| format!("key {}: {error}", key.id()))?;
            identities[usize::from(key.id()) % KEY_SLOTS] = Some(identity);
        }
        let inner = Inner { route: set.route_keys(now), identities, made: set.signing(now).made() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// One key, with id 0.
    #[must_use]
    pub fn single(secret: &[u8; 32], identity: rtc::Identity) -> Self {
        let mut identities = [const { None }; KEY_SLOTS];
        identities[0] = Some(identity);
        Self { inner: Arc::new(Inner { route: RouteKeys::from_secret(secret), identities, made: 0 }) }
    }

    /// Makes and opens route tokens.
    #[must_use]
    pub fn route(&self) -> &RouteKeys {
        &self.inner.route
    }

    /// The certificate that an answer with this ufrag named. `None`: its key is not held any more.
    #[must_use]
    pub fn identity(&self, ufrag: &str) -> Option<&rtc::Identity> {
        self.inner.identities.get(usize::from(key_id(ufrag)?))?.as_ref()
    }
}

impl PartialEq for PopKeys {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for PopKeys {}

impl fmt::Debug for PopKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PopKeys").field(&self.inner.route).finish()
    }
}

/// The set that counts.
#[derive(Debug)]
pub struct Keyring {
    current: RwLock<PopKeys>,
}

impl Keyring {
    /// Begins with this one.
    #[must_use]
    pub fn new(keys: PopKeys) -> Self {
        Self { current: RwLock::new(keys) }
    }

    /// The set that counts. One lock per call that is set up.
    #[must_use]
    pub fn current(&self) -> PopKeys {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Unix seconds of the making of the key that signs.
    #[must_use]
    pub fn signing_made(&self) -> u32 {
        self.current.read().unwrap_or_else(PoisonError::into_inner).inner.made
    }

    pub(crate) fn replace(&self, keys: PopKeys) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = keys;
    }
}

/// Looks after the file of a running edge: what is in it, and which of its keys signs by now.
#[derive(Debug)]
pub(crate) struct Watch {
    source: KeySource,
    file: Option<PathBuf>,
    set: KeySet,
    signing: u8,
    seen: Option<Stamp>,
}

/// Tells one version of a file from another: they come by rename, so the inode alone changes with each.
type Stamp = (SystemTime, u64, u64);

impl Watch {
    /// Reads the set for the first time.
    pub(crate) fn start(source: KeySource, now: u32) -> Result<(Self, PopKeys, Found), IdentityError> {
        // Before the content: a file that changes in between is read again.
        let file = source.file();
        let seen = file.as_ref().and_then(|file| stamp(file));
        let (set, found) = source.load(now)?;
        let keys = PopKeys::new(&set, now).map_err(|reason| source.damaged(reason))?;
        let signing = set.signing(now).id();
        Ok((Self { source, file, set, signing, seen }, keys, found))
    }

    /// The next set, when the file has changed or another key's time to sign has come.
    ///
    /// # Errors
    /// Told once per version of the file: what is wrong with it. The set that counts stays.
    pub(crate) fn poll(&mut self, now: u32) -> Result<Option<PopKeys>, IdentityError> {
        let seen = self.file.as_ref().and_then(|file| stamp(file));
        // A file that is gone for a moment, as with editors, is no news.
        let mut changed = false;
        if seen.is_some() && seen != self.seen {
            self.seen = seen;
            let set = self.source.load(now)?.0;
            changed = set != self.set;
            self.set = set;
        }
        let signing = self.set.signing(now).id();
        if !changed && signing == self.signing {
            return Ok(None);
        }
        self.signing = signing;
        PopKeys::new(&self.set, now).map(Some).map_err(|reason| self.source.damaged(reason))
    }
}

fn stamp(file: &std::path::Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.ino(), metadata.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_790_000_000;

    #[test]
    fn a_rotated_file_is_taken_up_once_and_once_more_when_its_key_signs() {
        let dir = std::env::temp_dir().join(format!("fronthaul-edge-watch-{}", std::process::id()));
        let source = KeySource::StateDir(dir.clone());
        let (mut watch, keys, found) = Watch::start(source.clone(), NOW).unwrap();
        assert_eq!((found, keys.route().newest()), (Found::Made, 0));
        assert_eq!(watch.poll(NOW).unwrap(), None);
        let rotate = |held: Option<KeySet>| {
            let mut set = held.ok_or("no set")?;
            set.rotate(NOW, 60, 3600).map_err(|error| error.to_string())?;
            Ok((set, ()))
        };
        source.update(rotate).unwrap();
        let opens = watch.poll(NOW).unwrap().expect("the file has changed");
        assert_eq!((opens.route().newest(), watch.poll(NOW + 59).unwrap()), (0, None));
        let signs = watch.poll(NOW + 60).unwrap().expect("the time has come");
        assert_eq!((signs.route().newest(), watch.poll(NOW + 61).unwrap()), (1, None));
        let (former, next) = (signs.identity("Q").unwrap(), signs.identity("R").unwrap());
        assert_eq!(former.fingerprint(), keys.identity("Q").unwrap().fingerprint());
        assert_ne!(former.fingerprint(), next.fingerprint());

        std::fs::write(dir.join(link::identity::keys::FILE), "nothing").unwrap();
        assert!(watch.poll(NOW + 62).is_err(), "told");
        assert_eq!(watch.poll(NOW + 63).unwrap(), None, "once, and the former set stays");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
