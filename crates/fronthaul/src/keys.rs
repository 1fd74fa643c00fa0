//! `fronthaul keys`: makes, rotates and shows the keys that the edges of a PoP share. Shows no secret.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use daemon::config::load;
use daemon::{Source, StartError};
use edge::keys::{IdentityError, KeySet, KeySource, PopKeys};

use crate::cli::{KeysCommand, KeysOptions, RotateOptions};

/// Carries one of the commands out.
pub(crate) fn run(command: &KeysCommand) -> Result<(), StartError> {
    let now = net::clock::unix_seconds();
    let (source, set) = match command {
        KeysCommand::Show(options) => {
            let source = source(options)?;
            let (set, _) = source.load(now).map_err(file)?;
            // As an edge would.
            PopKeys::new(&set, now).map_err(|reason| file(source.damaged(reason)))?;
            (source, set)
        }
        // Whatever is there, and also when it cannot be read.
        KeysCommand::New { options, replace: true } => {
            let source = source(options)?;
            let set = KeySet::make(now).map_err(|error| StartError::failed("making a key", error))?;
            source.replace(&set).map_err(file)?;
            (source, set)
        }
        KeysCommand::New { options, replace: false } => change(options, |held| match held {
            Some(_) => {
                Err("there is a set already: `fronthaul keys rotate` renews it, and --replace makes another one, \
                            which ends every call of the PoP"
                    .to_owned())
            }
            None => KeySet::make(now).map_err(|error| error.to_string()),
        })?,
        KeysCommand::Rotate(RotateOptions { options, sign_after_s, keep_h }) => change(options, |held| {
            let mut set =
                held.ok_or("there is no set: `fronthaul keys new` makes one, and so does an edge that starts")?;
            let keep = keep_h.saturating_mul(3600);
            set.rotate(now, *sign_after_s, keep).map_err(|error| error.to_string())?;
            Ok(set)
        })?,
    };
    // Nobody can be told that standard output is gone.
    let _ = io::stdout().write_all(table(&source, &set, now).as_bytes());
    Ok(())
}

fn change(
    options: &KeysOptions,
    change: impl FnOnce(Option<KeySet>) -> Result<KeySet, String>,
) -> Result<(KeySource, KeySet), StartError> {
    let source = source(options)?;
    let changed = source.update(|held| change(held).map(|set| (set.clone(), set)));
    Ok((source, changed.map_err(file)?))
}

fn file(error: IdentityError) -> StartError {
    StartError::File(error.to_string())
}

/// A set that an edge would make in passing is not made here: `keys show` looks, and changes nothing.
fn source(options: &KeysOptions) -> Result<KeySource, StartError> {
    if let Some(file) = &options.file {
        return Ok(KeySource::File(file.clone()));
    }
    let config: edge::Config = load(&Source { file: options.config.clone(), set: options.set.clone() })?;
    let source = config.key_source()?;
    Ok(match source.file() {
        Some(file) => KeySource::File(file),
        None => source,
    })
}

fn table(source: &KeySource, set: &KeySet, now: u32) -> String {
    let mut text = match source {
        KeySource::Environment(name) => format!("${name}\n"),
        KeySource::StateDir(path) | KeySource::File(path) => format!("{}\n", path.display()),
    };
    let signing = set.signing(now).id();
    let _ = writeln!(text, "{:>2}  {:>9}  {:<15}  certificate (SHA-256)", "id", "age", "");
    for key in set.keys() {
        let state = if key.id() == signing {
            "signs".to_owned()
        } else if key.signs_from() > now {
            format!("signs in {}", span(key.signs_from() - now))
        } else {
            "opens".to_owned()
        };
        let age = span(now.saturating_sub(key.made()));
        let _ = writeln!(text, "{:>2}  {age:>9}  {state:<15}  {}", key.id(), key.fingerprint());
    }
    text
}

/// The two largest units of a time.
fn span(seconds: u32) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}
