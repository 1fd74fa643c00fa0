//! The key set of a PoP: what its edges share, so that each can route and answer for the others.
//!
//! ```text
//! pop.keys     # comment
//!              id made signs_from secret certificate private_key         one line per key, newest first
//!              id 0..=15; made, signs_from: Unix seconds; secret: 64 hex digits; the last two: base64 of DER
//! ```
//!
//! A key id stands for a route key, a password key, a key between peers (all derived from `secret`) and a DTLS
//! certificate: they rotate together. A running call keeps the certificate that its answer named, because its ufrag names
//! the key id.
//!
//! # Rotation
//!
//! [`KeySet::rotate`] adds a key that opens at once and signs some time later, when every edge has read it, and drops the
//! keys that another one replaced long ago: the longest call is over by then.
//!
//! Secrets show in no `Debug` output and leave through [`KeySet::to_text`] alone.

use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};

use super::IdentityError;
use super::authority::valid_for;
use super::state_dir::{self, StateDir};
use crate::route::{KEY_SLOTS, RouteKeys};

/// Its name in a state directory.
pub const FILE: &str = "pop.keys";

/// The one secret of former versions: it becomes key 0.
const FORMER: &str = "route.key";

/// Far more than any rotation; nothing looks at it but clients that check dates.
const CERTIFICATE_DAYS: u32 = 365;

/// What of a key must not be seen.
#[derive(Clone, PartialEq, Eq)]
struct Secret<T>(T);

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// One key id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PopKey {
    id: u8,
    made: u32,
    signs_from: u32,
    secret: Secret<[u8; 32]>,
    certificate: Vec<u8>,
    private_key: Secret<Vec<u8>>,
}

/// All keys of a PoP, newest first; never empty, no id twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySet {
    keys: Vec<PopKey>,
}

/// Where a key set comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// [`FILE`] in this state directory, made when it is missing.
    StateDir(PathBuf),
    /// This file, which has to be there.
    File(PathBuf),
    /// The text of this environment variable.
    Environment(String),
}

/// What [`KeySource::load`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It read what is there.
    Read,
    /// There was nothing; a set of one key was made.
    Made,
    /// There was the `route.key` of a former version, which became key 0; the file is gone.
    Adopted,
}

/// Why a key set was not rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RotateError {
    /// Each key id is taken by a key whose calls may still run.
    #[error("all 16 key ids are taken by keys that sign or stopped less than the time to keep ago: keep them for less")]
    Full,
    /// The former rotation is not over.
    #[error(
        "key {id} is new and signs in {seconds} s only: another rotation before that would not be seen by all edges"
    )]
    Pending {
        /// Which key.
        id: u8,
        /// Until it signs.
        seconds: u32,
    },
    /// No key could be made.
    #[error("the system made no key")]
    NoKey,
}

impl PopKey {
    fn make(id: u8, now: u32, signs_from: u32, secret: [u8; 32]) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "fronthaul");
        valid_for(&mut params, CERTIFICATE_DAYS);
        let certificate = params.self_signed(&key)?.der().to_vec();
        let private_key = Secret(key.serialize_der());
        Ok(Self { id, made: now, signs_from, secret: Secret(secret), certificate, private_key })
    }

    /// Its id: 0 to 15.
    #[must_use]
    pub fn id(&self) -> u8 {
        self.id
    }

    /// Unix seconds of its making.
    #[must_use]
    pub fn made(&self) -> u32 {
        self.made
    }

    /// Unix seconds from which it signs, as long as no newer key does.
    #[must_use]
    pub fn signs_from(&self) -> u32 {
        self.signs_from
    }

    /// The DTLS certificate, DER.
    #[must_use]
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The certificate's key, PKCS #8 in DER.
    #[must_use]
    pub fn private_key(&self) -> &[u8] {
        &self.private_key.0
    }

    /// SHA-256 of the certificate as answers name it: `AA:BB:...` (RFC 8122 §5).
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let digest = digest::digest(&digest::SHA256, &self.certificate);
        digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
    }

    fn read(line: &str) -> Result<Self, String> {
        let mut words = line.split_ascii_whitespace();
        let mut word = |what: &'static str| words.next().ok_or_else(|| format!("has no {what}"));
        let id = word("key id")?;
        let id = id
            .parse()
            .ok()
            .filter(|id| usize::from(*id) < KEY_SLOTS)
            .ok_or_else(|| format!("{id} is no key id: 0 to 15"))?;
        let mut seconds = |what| word(what)?.parse().map_err(|_| format!("its {what} is no number of seconds"));
        let (made, signs_from) = (seconds("time of making")?, seconds("time of signing")?);
        let secret = state_dir::read_hex(word("secret")?).ok_or("its secret has no 64 hex digits")?;
        let mut der = |what| STANDARD.decode(word(what)?).map_err(|_| format!("its {what} is no base64"));
        let (certificate, private_key) = (der("certificate")?, der("private key")?);
        if words.next().is_some() {
            return Err("goes on after the private key".to_owned());
        }
        Ok(Self { id, made, signs_from, secret: Secret(secret), certificate, private_key: Secret(private_key) })
    }
}

impl KeySet {
    /// A set of one key, which signs at once.
    ///
    /// # Errors
    /// The system made none.
    pub fn make(now: u32) -> Result<Self, RotateError> {
        let secret = state_dir::random_secret().map_err(|_| RotateError::NoKey)?;
        Self::of_secret(secret, now)
    }

    fn of_secret(secret: [u8; 32], now: u32) -> Result<Self, RotateError> {
        let key = PopKey::make(0, now, now, secret).map_err(|_| RotateError::NoKey)?;
        Ok(Self { keys: vec![key] })
    }

    /// Adds a key that signs after `delay` seconds, and drops those that another one replaced more than `keep` seconds
    /// ago.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn rotate(&mut self, now: u32, delay: u32, keep: u32) -> Result<(), RotateError> {
        let newest = &self.keys[0];
        if newest.signs_from > now {
            return Err(RotateError::Pending { id: newest.id, seconds: newest.signs_from - now });
        }
        let mut kept = Vec::with_capacity(self.keys.len() + 1);
        // The newest one signs; each other was replaced when the one before it began to.
        let mut replaced = None;
        for key in &self.keys {
            if replaced.is_none_or(|at: u32| now.saturating_sub(at) <= keep) {
                kept.push(key.clone());
            }
            replaced = Some(key.signs_from);
        }
        // The id after the newest one's: an id comes back as late as can be.
        let free = (1..=KEY_SLOTS).map(|step| (usize::from(newest.id) + step) % KEY_SLOTS);
        let free = free.filter_map(|id| u8::try_from(id).ok()).find(|id| kept.iter().all(|key| key.id != *id));
        let id = free.ok_or(RotateError::Full)?;
        let secret = state_dir::random_secret().map_err(|_| RotateError::NoKey)?;
        let key = PopKey::make(id, now, now.saturating_add(delay), secret).map_err(|_| RotateError::NoKey)?;
        kept.insert(0, key);
        self.keys = kept;
        Ok(())
    }

    /// All keys, newest first.
    #[must_use]
    pub fn keys(&self) -> &[PopKey] {
        &self.keys
    }

    /// The key that signs: the newest whose time has come, else the oldest.
    #[must_use]
    pub fn signing(&self, now: u32) -> &PopKey {
        let due = self.keys.iter().find(|key| key.signs_from <= now);
        due.or_else(|| self.keys.last()).unwrap_or(&self.keys[0])
    }

    /// The keys by which route tokens are made and read.
    #[must_use]
    pub fn route_keys(&self, now: u32) -> RouteKeys {
        let signing = self.signing(now);
        let others = self.keys.iter().filter(|key| key.id != signing.id);
        let secrets: Vec<(u8, [u8; 32])> =
            std::iter::once(signing).chain(others).map(|key| (key.id, key.secret.0)).collect();
        RouteKeys::from_secrets(&secrets).expect("one key at least, ids below 16, none twice")
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let mut keys: Vec<PopKey> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let key = PopKey::read(line).map_err(|reason| format!("line {number} {reason}"))?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(format!("line {number} names key {} a second time", key.id));
            }
            keys.push(key);
        }
        if keys.is_empty() { Err("holds no key".to_owned()) } else { Ok(Self { keys }) }
    }

    /// The text of a file, secrets included.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = "# Keys of a PoP, newest first. Secret: who has them can answer in the name of its edges.\n\
                        # id made signs_from secret certificate private_key\n"
            .to_owned();
        for PopKey { id, made, signs_from, secret, certificate, private_key } in &self.keys {
            let secret = state_dir::write_hex(&secret.0);
            let (certificate, private_key) = (STANDARD.encode(certificate), STANDARD.encode(&private_key.0));
            text.push_str(&format!("{id} {made} {signs_from} {secret} {certificate} {private_key}\n"));
        }
        text
    }
}

impl KeySource {
    /// Its file. `None`: it is an environment variable.
    #[must_use]
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Self::StateDir(dir) => Some(dir.join(FILE)),
            Self::File(path) => Some(path.clone()),
            Self::Environment(_) => None,
        }
    }

    /// Reads the set, or makes the one of a state directory.
    ///
    /// # Errors
    /// A file that cannot be read or made, or is not what it should be.
    pub fn load(&self, now: u32) -> Result<(KeySet, Found), IdentityError> {
        match self {
            Self::StateDir(dir) => {
                let dir = StateDir::lock(dir)?;
                if let Some(text) = dir.read(FILE)? {
                    return Ok((self.parse(&text)?, Found::Read));
                }
                let path = dir.path(FILE);
                let none = |error: RotateError| self.invalid(error.to_string(), "try again".to_owned());
                let (set, found) = match dir.read(FORMER)? {
                    Some(former) => {
                        let secret = state_dir::read_hex(former.trim()).ok_or_else(|| IdentityError::Invalid {
                            path: dir.path(FORMER),
                            reason: "does not hold 64 hex digits".to_owned(),
                            fix: format!("restore it, or remove it, and {} is made anew", path.display()),
                        })?;
                        (KeySet::of_secret(secret, now).map_err(none)?, Found::Adopted)
                    }
                    None => (KeySet::make(now).map_err(none)?, Found::Made),
                };
                dir.write(FILE, set.to_text().as_bytes())?;
                dir.remove(FORMER)?;
                Ok((set, found))
            }
            Self::File(path) => match state_dir::read_secret(path)? {
                Some(text) => Ok((self.parse(&text)?, Found::Read)),
                None => {
                    let fix = format!("make it with `fronthaul keys new --file {}`", path.display());
                    Err(self.invalid("there is no such file".to_owned(), fix))
                }
            },
            Self::Environment(name) => {
                let text = std::env::var(name).map_err(|_| self.damaged("is not set, or not text".to_owned()))?;
                Ok((self.parse(&text)?, Found::Read))
            }
        }
    }

    /// Puts this set into its file, whatever is there.
    ///
    /// # Errors
    /// A file that cannot be written; an environment variable, which cannot be changed.
    pub fn replace(&self, set: &KeySet) -> Result<(), IdentityError> {
        let (dir, name) = self.lock()?;
        dir.write(&name, set.to_text().as_bytes())
    }

    /// Changes the set in its file, under the lock of its directory. `change` is given the set that is there, and refuses as
    /// `<reason>: <fix>`.
    ///
    /// # Errors
    /// A file that cannot be read or written; an environment variable, which cannot be changed; what `change` says.
    pub fn update<T>(
        &self,
        change: impl FnOnce(Option<KeySet>) -> Result<(KeySet, T), String>,
    ) -> Result<T, IdentityError> {
        let (dir, name) = self.lock()?;
        let held = dir.read(&name)?.map(|text| self.parse(&text)).transpose()?;
        let (set, told) = change(held).map_err(|refused| {
            let (reason, fix) = refused.split_once(": ").unwrap_or((&refused, "try again"));
            self.invalid(reason.to_owned(), fix.to_owned())
        })?;
        dir.write(&name, set.to_text().as_bytes())?;
        Ok(told)
    }

    /// The directory of its file, and the file's name there.
    fn lock(&self) -> Result<(StateDir, String), IdentityError> {
        let Some(path) = self.file() else {
            let fix = "name a file, and set the variable to its text".to_owned();
            return Err(self.invalid("cannot be written".to_owned(), fix));
        };
        let (parent, name) = (path.parent().filter(|dir| !dir.as_os_str().is_empty()), path.file_name());
        let Some(name) = name.and_then(|name| name.to_str()) else {
            return Err(self.invalid("names no file".to_owned(), "name one, such as pop.keys".to_owned()));
        };
        Ok((StateDir::lock(parent.unwrap_or_else(|| Path::new(".")))?, name.to_owned()))
    }

    fn parse(&self, text: &str) -> Result<KeySet, IdentityError> {
        KeySet::from_text(text).map_err(|reason| self.damaged(reason))
    }

    /// It does not hold a whole set.
    #[must_use]
    pub fn damaged(&self, reason: String) -> IdentityError {
        let fix = match self.file() {
            Some(path) => format!(
                "restore it from another edge of the PoP or a backup; `fronthaul keys new --replace --file {}` makes \
                 another set, which ends every call of the PoP",
                path.display()
            ),
            None => "set the variable to the whole text of a file that `fronthaul keys new --file` makes".to_owned(),
        };
        self.invalid(reason, fix)
    }

    fn invalid(&self, reason: String, fix: String) -> IdentityError {
        let path = self.file().unwrap_or_else(|| match self {
            Self::Environment(name) => PathBuf::from(format!("${name}")),
            Self::StateDir(path) | Self::File(path) => path.clone(),
        });
        IdentityError::Invalid { path, reason, fix }
    }
}
