//! `fronthaul token`: what clients show to an edge.

use std::fs;
use std::io::{self, Write as _};

use daemon::config::load;
use daemon::{Problem, Source, StartError};
use edge::auth::{Allowance, sign};
use edge::config::Secret;

use crate::cli::{SignOptions, TokenCommand};

/// Carries one of the commands out.
pub(crate) fn run(command: &TokenCommand) -> Result<(), StartError> {
    let line = match command {
        TokenCommand::Sign(options) => token(options)?,
        TokenCommand::Hash => {
            let mut key = String::new();
            io::stdin().read_line(&mut key).map_err(|error| StartError::failed("reading the key", error))?;
            let key = key.trim_end_matches(['\r', '\n']);
            if key.is_empty() {
                return Err(Problem::new("standard input", "", "it has no key", "write one line").into());
            }
            edge::auth::hash_text(key)
        }
    };
    // Nobody can be told that standard output is gone.
    let _ = writeln!(io::stdout(), "{line}");
    Ok(())
}

fn token(options: &SignOptions) -> Result<String, StartError> {
    let config: edge::Config = load(&Source { file: options.config.clone(), set: options.set.clone() })?;
    let secret = secret(options, &config)?;
    if options.max_concurrent != 0 && options.sub.is_none() {
        let reason = "calls at once are counted by the name of who has the token";
        return Err(Problem::new("--max-concurrent", options.max_concurrent, reason, "add --sub NAME").into());
    }
    let allowance = Allowance {
        max_seconds: options.max_seconds,
        max_concurrent: options.max_concurrent,
        models: options.model.clone(),
    };
    let expires = u64::from(net::clock::unix_seconds()) + u64::from(options.expires_s);
    let named = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (issuer, audience) = (named(&config.auth.issuer), named(&config.auth.audience));
    let names = (issuer.as_deref(), audience.as_deref());
    sign(secret.as_bytes(), options.sub.as_deref(), options.tenant, expires, &allowance, names)
        .map_err(|error| StartError::failed("signing the token", error))
}

fn secret(options: &SignOptions, config: &edge::Config) -> Result<String, StartError> {
    let (key, secret) = match &options.secret {
        Some(text) => match text.strip_prefix('@') {
            Some(file) => {
                let text = fs::read_to_string(file).map_err(|error| StartError::File(format!("{file}: {error}")))?;
                return Ok(text.trim_end().to_owned());
            }
            // A secret in the arguments is one for everybody on this machine.
            None if !text.starts_with("env:") => {
                let fix = "write env:NAME or @FILE";
                return Err(Problem::new("--secret", "\"...\"", "arguments are for everybody to read", fix).into());
            }
            None => ("--secret", Secret::new(text)),
        },
        None => ("auth.token_secret", config.auth.token_secret.clone()),
    };
    if secret.is_empty() {
        let fix = "name it with --secret env:NAME or @FILE, or the edge's config with --config";
        return Err(Problem::new(key, "\"\"", "there is no secret to sign with", fix).into());
    }
    secret.reveal().map_err(|name| {
        let reason = format!("the environment has no variable {name}");
        Problem::new(key, "\"...\"", reason, "set it").into()
    })
}
