//! Who may call, in the config.

use std::path::PathBuf;

use daemon::{Problem, Problems};
use serde::Deserialize;

use super::{Config, Secret};
use crate::auth::{Allowance, ApiKey, Auth, Grant, Signed};

/// Bytes of a shared secret: those of the hash that it is for (RFC 7518 §3.2).
const SECRET_MIN: usize = 32;

/// Who may call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// Lets everybody in, from wherever they come. Without it an edge that knows no key is open on a loopback `http_bind`, and
    /// starts on no other. Defaults to false.
    pub open: bool,
    /// API keys. Defaults to none.
    pub keys: Vec<KeyConfig>,
    /// The secret of tokens signed with HS256, HS384 or HS512: the text, 32 bytes or more, or `env:NAME`. Empty: none. Defaults
    /// to empty.
    pub token_secret: Secret,
    /// The keys of an issuer of tokens (JWKS): a file, or an `https://` URL that is read again every 10 minutes. Empty: none.
    /// Defaults to empty.
    pub jwks: String,
    /// What tokens must name as `iss`. Empty: anything. Defaults to empty.
    pub issuer: String,
    /// What tokens must name as `aud`. Empty: anything. Defaults to empty.
    pub audience: String,
    /// The roots by which the host of `jwks` is known, as PEM. Defaults to Debian's bundle.
    pub jwks_roots: PathBuf,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            open: false,
            keys: Vec::new(),
            token_secret: Secret::default(),
            jwks: String::new(),
            issuer: String::new(),
            audience: String::new(),
            jwks_roots: PathBuf::from("/etc/ssl/certs/ca-certificates.crt"),
        }
    }
}

/// An API key.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyConfig {
    /// What logs call it.
    pub id: String,
    /// Its text, or `env:NAME`. Empty: `sha256` says which it is. Defaults to empty.
    #[serde(default)]
    pub key: Secret,
    /// The SHA-256 of its text, 64 hex digits: `fronthaul token hash` prints it. Defaults to empty.
    #[serde(default)]
    pub sha256: String,
    /// Whose calls it makes. Defaults to 0.
    #[serde(default)]
    pub tenant: u16,
    /// Longest duration of a call, in seconds; 0 for no limit. Defaults to 0.
    #[serde(default)]
    pub max_seconds: u32,
    /// Calls at once, at each edge; 0 for no limit. Defaults to 0.
    #[serde(default)]
    pub max_concurrent: u32,
    /// Names of `models` that it may ask for; none for all. Defaults to none.
    #[serde(default)]
    pub models: Vec<String>,
}

impl KeyConfig {
    fn read(&self) -> Result<ApiKey, Problem> {
        let allowance = Allowance {
            max_seconds: self.max_seconds,
            max_concurrent: self.max_concurrent,
            models: self.models.clone(),
        };
        let grant = Grant::new(self.tenant, &format!("key:{}", self.id), allowance);
        if self.key.is_empty() == self.sha256.is_empty() {
            let reason = format!("key {:?} has neither or both of key and sha256", self.id);
            return Err(Problem::new("auth.keys", "", reason, "write the one that you have"));
        }
        if self.key.is_empty() {
            return unhex(&self.sha256).map(|hash| ApiKey::of_hash(hash, grant)).ok_or_else(|| {
                let fix = "write the 64 hex digits that `fronthaul token hash` prints";
                Problem::new("auth.keys.sha256", format_args!("{:?}", self.sha256), "no SHA-256", fix)
            });
        }
        let text = reveal("auth.keys.key", &self.key)?;
        if text.len() < 16 {
            let reason = format!("key {:?} has {} characters, which can be guessed", self.id, text.len());
            return Err(Problem::new(
                "auth.keys.key",
                "\"...\"",
                reason,
                "draw 16 or more, such as with `openssl rand -hex 24`",
            ));
        }
        Ok(ApiKey::of_text(&text, grant))
    }
}

impl AuthConfig {
    fn knows_somebody(&self) -> bool {
        !self.keys.is_empty() || !self.token_secret.is_empty() || !self.jwks.is_empty()
    }
}

impl Config {
    /// Whether somebody who shows no key is let in.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.auth.open || (!self.auth.knows_somebody() && self.http_bind.ip().is_loopback())
    }

    /// What an operator has to know of an edge that is open.
    #[must_use]
    pub fn openness(&self) -> Option<String> {
        self.is_open().then(|| {
            let who =
                if self.http_bind.ip().is_loopback() { "whoever reaches this machine's loopback" } else { "EVERYBODY" };
            format!(
                "open access: {who} may call at {} without a key; set auth.keys, auth.token_secret or auth.jwks",
                self.http_bind
            )
        })
    }

    /// The judge of requests. Keys of `auth.jwks` are for somebody with I/O to bring.
    ///
    /// # Errors
    /// Every key that cannot be read.
    pub fn judge(&self) -> Result<Auth, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut keys = Vec::new();
        for key in &self.auth.keys {
            match key.read() {
                Ok(key) => keys.push(key),
                Err(problem) => problems.push(problem),
            }
        }
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let mut signed = None;
        if !self.auth.token_secret.is_empty() || !self.auth.jwks.is_empty() {
            let secret = (!self.auth.token_secret.is_empty())
                .then(|| reveal("auth.token_secret", &self.auth.token_secret))
                .transpose();
            match secret {
                Ok(Some(secret)) if secret.len() < SECRET_MIN => problems.push(Problem::new(
                    "auth.token_secret",
                    "\"...\"",
                    format!("it has {} bytes, which can be guessed offline from one token", secret.len()),
                    "draw 32 bytes or more, such as with `openssl rand -hex 32`",
                )),
                Ok(secret) => {
                    let secret = secret.as_ref().map(String::as_bytes);
                    match Signed::new(secret, text(&self.auth.issuer), text(&self.auth.audience)) {
                        Ok(verifier) => signed = Some(verifier),
                        Err(error) => {
                            problems.push(Problem::new("auth.token_secret", "\"...\"", error, "draw another one"));
                        }
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
        if problems.is_empty() { Ok(Auth::new(self.is_open(), keys, signed)) } else { Err(problems) }
    }

    pub(super) fn check_auth(&self, problems: &mut Problems) {
        problems.require(
            self.auth.knows_somebody() || self.auth.open || self.http_bind.ip().is_loopback(),
            "http_bind",
            format_args!("\"{}\"", self.http_bind),
            "it is reached from other machines, and nobody needs a key to call",
            "set auth.keys, auth.token_secret or auth.jwks; or bind a loopback address; or, where everybody may call, auth.open = true",
        );
        problems.require(
            !self.auth.jwks.starts_with("http://"),
            "auth.jwks",
            format_args!("{:?}", self.auth.jwks),
            "whoever is on the way could put keys of their own there",
            "name an https:// URL, or a file",
        );
        problems.require(
            self.auth.jwks.is_empty() || !self.auth.audience.is_empty(),
            "auth.audience",
            "\"\"",
            "each token of the issuer of auth.jwks would be a key here, whatever app it was made for (RFC 8725 3.9)",
            "set it to what the aud of tokens for this edge says",
        );
        let mut ids: Vec<&str> = self.auth.keys.iter().map(|key| key.id.as_str()).collect();
        ids.sort_unstable();
        problems.require(
            ids.windows(2).all(|pair| pair[0] != pair[1]),
            "auth.keys.id",
            format_args!("{ids:?}"),
            "two keys of one name count their calls together",
            "give each a name of its own",
        );
        for key in &self.auth.keys {
            for model in key.models.iter().filter(|model| !self.models.contains_key(*model)) {
                let reason = format!("key {:?} may ask for a model that this edge has not", key.id);
                problems.push(Problem::new(
                    "auth.keys.models",
                    format_args!("{model:?}"),
                    reason,
                    "name one of models",
                ));
            }
        }
    }
}

fn reveal(key: &str, secret: &Secret) -> Result<String, Problem> {
    secret.reveal().map_err(|name| {
        let reason = format!("the environment has no variable {name}");
        Problem::new(key, "\"...\"", reason, "set it, or write the text itself")
    })
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let digits = text.as_bytes();
    if digits.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::tests::problems;
    use super::*;

    fn key(id: &str, key: &str) -> KeyConfig {
        KeyConfig {
            id: id.to_owned(),
            key: Secret::new(key),
            sha256: String::new(),
            tenant: 0,
            max_seconds: 0,
            max_concurrent: 0,
            models: Vec::new(),
        }
    }

    fn with(auth: AuthConfig) -> Config {
        Config { auth, ..Config::default() }
    }

    #[test]
    fn an_issuer_of_tokens_for_other_apps_is_trusted_with_an_audience_alone() {
        let jwks = "https://issuer.example/keys".to_owned();
        let any = AuthConfig { jwks, ..AuthConfig::default() };
        let ours = AuthConfig { audience: "voice".to_owned(), ..any.clone() };
        assert!(problems(&with(any)).iter().any(|problem| problem.contains("auth.audience")));
        assert_eq!(problems(&with(ours)), [] as [String; 0]);
    }

    #[test]
    fn an_edge_that_knows_no_key_is_open_on_loopback_and_starts_nowhere_else() {
        let loopback = Config::default();
        assert_eq!((loopback.is_open(), problems(&loopback)), (true, vec![]));
        assert!(loopback.openness().is_some());
        let reached = Config { http_bind: "0.0.0.0:8080".parse().unwrap(), ..Config::default() };
        let found = problems(&reached);
        assert!(found.iter().any(|problem| problem.contains("auth.keys") && problem.contains("0.0.0.0")), "{found:?}");
        let opened = Config { auth: AuthConfig { open: true, ..AuthConfig::default() }, ..reached.clone() };
        assert!(problems(&opened).iter().all(|problem| !problem.contains("auth.keys")));
        assert!(opened.openness().unwrap().contains("EVERYBODY"));
        let auth = AuthConfig { keys: vec![key("app", "0123456789abcdef")], ..AuthConfig::default() };
        let keyed = Config { auth, ..reached };
        assert_eq!((keyed.is_open(), keyed.openness()), (false, None));
    }

    #[test]
    fn a_key_closes_an_edge_on_loopback_as_well() {
        assert!(!with(AuthConfig { keys: vec![key("app", "0123456789abcdef")], ..AuthConfig::default() }).is_open());
    }

    #[test]
    fn each_key_that_cannot_be_read_is_named_with_the_fix_and_without_its_text() {
        let hashed = KeyConfig { sha256: "abc".to_owned(), ..key("short hash", "") };
        let keys =
            vec![key("none", ""), key("brief", "hunter2"), hashed, key("absent", "env:FRONTHAUL_NO_SUCH_VARIABLE")];
        let auth = AuthConfig { keys, token_secret: Secret::new("too short"), ..AuthConfig::default() };
        let found = with(auth).judge().unwrap_err();
        let text: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 5, "{text:#?}");
        for part in ["\"none\"", "\"brief\"", "64 hex", "FRONTHAUL_NO_SUCH_VARIABLE", "32 bytes"] {
            assert!(text.iter().any(|problem| problem.contains(part)), "{part}: {text:#?}");
        }
        assert!(text.iter().all(|problem| !problem.contains("hunter2") && !problem.contains("too short")));
    }

    #[test]
    fn keys_for_models_that_are_not_here_and_keys_fetched_in_the_clear_are_refused() {
        let fine = key("app", "0123456789abcdef");
        let other = KeyConfig { models: vec!["oracle".to_owned()], ..fine.clone() };
        let auth = AuthConfig {
            keys: vec![fine, other],
            jwks: "http://issuer.example/keys".to_owned(),
            ..AuthConfig::default()
        };
        let found = problems(&with(auth));
        for part in ["oracle", "https://", "a name of its own"] {
            assert!(found.iter().any(|problem| problem.contains(part)), "{part}: {found:#?}");
        }
    }
}
