//! The keys of the PoP in the form in which signaling and workers use them, and how they are renewed while they run.
//!
//! [`PopKeys`] is one immutable set, cheap to clone. Signaling takes the current one from the [`Keyring`] for each call; each
//! worker holds its own clone and is sent the next one through its mailbox, so the media path takes no lock for it.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use link::identity::IdentityError;
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
        let keys = PopKeys::new(&set, now)
            .map_err(|reason| IdentityError::Invalid { path: file.clone().unwrap_or_default(), reason })?;
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
        if seen.is_some() && seen != self.seen {
            self.seen = seen;
            self.set = self.source.load(now)?.0;
        } else if self.set.signing(now).id() == self.signing {
            return Ok(None);
        }
        self.signing = self.set.signing(now).id();
        let path = self.file.clone().unwrap_or_default();
        PopKeys::new(&self.set, now).map(Some).map_err(|reason| IdentityError::Invalid { path, reason })
    }
}

fn stamp(file: &std::path::Path) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.ino(), metadata.len()))
}
