//! The directory of a node's files, locked while it is held.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::IdentityError;

/// Exclusive access to the files, until dropped.
#[derive(Debug)]
pub(super) struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    /// Makes the directory if need be and waits for other processes to leave it.
    pub(super) fn lock(path: &Path) -> Result<Self, IdentityError> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| failed("create", path, source))?;
        let mode = fs::metadata(path).map_err(|source| failed("read", path, source))?.mode() & 0o777;
        if mode & 0o022 != 0 {
            return Err(IdentityError::Permissions { path: path.to_owned(), mode, fix: 0o700 });
        }
        let lock_path = path.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|source| failed("open", &lock_path, source))?;
        lock.lock().map_err(|source| failed("lock", &lock_path, source))?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The file's text. `None`: there is no such file.
    pub(super) fn read(&self, name: &str) -> Result<Option<String>, IdentityError> {
        read_secret(&self.path(name))
    }

    /// Removes the file, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<(), IdentityError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &path, error)),
            _ => Ok(()),
        }
    }

    /// Replaces the file: readers see the old one or the new one, after a crash too.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), IdentityError> {
        let path = self.path(name);
        // One name suffices under the lock; a former one's remains are overwritten.
        let draft = self.path(&format!(".{name}.draft"));
        let written = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&draft)
            .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()));
        written.and_then(|()| fs::rename(&draft, &path)).map_err(|source| failed("write", &path, source))
    }

    /// 32 random bytes, made on first use, as 64 hex digits.
    pub(super) fn secret(&self, name: &str) -> Result<[u8; 32], IdentityError> {
        if let Some(text) = self.read(name)? {
            return read_hex(text.trim()).ok_or_else(|| IdentityError::Invalid {
                path: self.path(name),
                reason: "does not hold 64 hex digits".to_owned(),
                fix: "restore it, or remove it and restart every node that uses it".to_owned(),
            });
        }
        let secret = random_secret().map_err(|source| failed("make", &self.path(name), source))?;
        let mut text = write_hex(&secret);
        text.push('\n');
        self.write(name, text.as_bytes())?;
        Ok(secret)
    }
}

/// The text of a file that no other user may read. `None`: there is no such file.
pub(super) fn read_secret(path: &Path) -> Result<Option<String>, IdentityError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", path, source)),
    };
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(IdentityError::Permissions { path: path.to_owned(), mode, fix: 0o600 });
    }
    fs::read_to_string(path).map(Some).map_err(|source| failed("read", path, source))
}

/// 32 random bytes.
pub(super) fn random_secret() -> io::Result<[u8; 32]> {
    let mut secret = [0; 32];
    aws_lc_rs::rand::fill(&mut secret).map_err(|_| io::Error::other("the system gave no random bytes"))?;
    Ok(secret)
}

pub(super) fn write_hex(secret: &[u8; 32]) -> String {
    secret.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn read_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn failed(action: &'static str, path: &Path, source: io::Error) -> IdentityError {
    IdentityError::Io { action, path: path.to_owned(), source }
}
