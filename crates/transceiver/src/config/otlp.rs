//! The `[otlp]` table: where the records of turns go as spans.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use daemon::config::Secret;
use daemon::{Problem, Problems};
use serde::{Deserialize, Serialize};
use tonic::codegen::http::Uri;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};

/// A collector of OpenTelemetry spans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct OtlpConfig {
    /// `http://host:port` of a collector that speaks OTLP over gRPC, 4317 by custom. Empty: no spans. Defaults to empty.
    pub endpoint: String,
    /// Sent with each request, such as `authorization`: the text, or `env:NAME`. Defaults to none.
    pub headers: BTreeMap<String, Secret>,
}

impl OtlpConfig {
    /// The headers as gRPC has them.
    ///
    /// # Errors
    /// One problem of each header that cannot be sent.
    pub(crate) fn metadata(&self) -> Result<MetadataMap, Vec<Problem>> {
        let mut metadata = MetadataMap::new();
        let mut problems = Vec::new();
        for (name, secret) in &self.headers {
            let problem = |reason: String, fix| Problem::new(format!("otlp.headers.{name}"), "\"...\"", reason, fix);
            let key = AsciiMetadataKey::from_str(name);
            let text = secret.reveal();
            match (key, text.as_deref().map(AsciiMetadataValue::from_str)) {
                (Ok(key), Ok(Ok(value))) => drop(metadata.insert(key, value)),
                (Err(_), _) => problems.push(problem(
                    "it is no name of a header".to_owned(),
                    "write lower-case letters, digits, - _ and ., and no name that ends with -bin",
                )),
                (_, Err(name)) => problems.push(problem(
                    format!("the environment has no variable {name}"),
                    "set it, or write the text itself",
                )),
                (_, Ok(Err(_))) => {
                    problems.push(problem("it has characters that no header has".to_owned(), "write visible ASCII"));
                }
            }
        }
        if problems.is_empty() { Ok(metadata) } else { Err(problems) }
    }

    pub(super) fn check(&self, problems: &mut Problems) {
        let plain = |uri: &Uri| {
            uri.scheme_str() == Some("http")
                && uri
                    .authority()
                    .is_some_and(|authority| authority.port().is_some() && !authority.as_str().contains('@'))
                && matches!(uri.path(), "" | "/")
                && uri.query().is_none()
        };
        problems.require(
            self.endpoint.is_empty() || self.endpoint.parse().is_ok_and(|uri| plain(&uri)),
            "otlp.endpoint",
            format_args!("{:?}", self.endpoint),
            "it is http://host:port alone: gRPC without TLS",
            "write it as in \"http://127.0.0.1:4317\"; for TLS run a collector beside the transceiver that forwards; \
             credentials go to otlp.headers",
        );
        for problem in self.metadata().err().into_iter().flatten() {
            problems.push(problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(config: &OtlpConfig) -> Vec<String> {
        let mut problems = Problems::new();
        config.check(&mut problems);
        problems.into_vec().into_iter().map(|problem| format!("{problem:?}")).collect()
    }

    fn with_header(name: &str, value: &str) -> OtlpConfig {
        let headers = BTreeMap::from([(name.to_owned(), Secret::new(value))]);
        OtlpConfig { endpoint: "http://[::1]:4317".to_owned(), headers }
    }

    #[test]
    fn endpoints_are_plain_http_with_a_port() {
        for (endpoint, sound) in [
            ("", true),
            ("http://127.0.0.1:4317", true),
            ("http://collector.example:4317/", true),
            ("https://collector.example:4317", false),
            ("http://collector.example", false),
            ("http://user:word@collector.example:4317", false),
            ("http://collector.example:4317/v1/traces", false),
            ("127.0.0.1:4317", false),
        ] {
            let config = OtlpConfig { endpoint: endpoint.to_owned(), ..OtlpConfig::default() };
            assert_eq!(found(&config).is_empty(), sound, "{endpoint}");
        }
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_a_problem_that_does_not_show_it() {
        assert_eq!(found(&with_header("authorization", "Bearer word")), [] as [String; 0]);
        for (name, value) in [("two words", "secret"), ("x", "secret\n"), ("x", "env:FRONTHAUL_NO_SUCH_VARIABLE")] {
            let found = found(&with_header(name, value));
            assert_eq!(found.len(), 1, "{name}");
            assert!(found[0].contains(&format!("otlp.headers.{name}")) && !found[0].contains("secret"), "{found:?}");
        }
    }

    #[test]
    fn headers_are_not_in_what_is_logged() {
        let config = with_header("authorization", "Bearer word");
        assert!(!format!("{config:?}").contains("word"));
        assert!(!serde_json::to_string(&config).unwrap().contains("word"));
    }
}
