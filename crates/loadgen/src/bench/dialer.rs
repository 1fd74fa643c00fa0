//! HTTP beside the media loop: a few threads that post offers and hang up.

use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};

/// Requests at once. An answer takes the server a fraction of a millisecond.
const THREADS: usize = 4;

enum Request {
    Offer { caller: usize, sdp: String },
    HangUp { location: String },
}

/// An offer's answer.
pub(crate) struct Answered {
    pub(crate) caller: usize,
    /// The SDP answer and the call's Location.
    pub(crate) result: anyhow::Result<(String, Option<String>)>,
}

/// Posts offers to one URL.
pub(crate) struct Dialer {
    requests: Sender<Request>,
    /// A lock that the media loop only tries: a channel would have it wait for a thread of lower priority that is about to
    /// put something in.
    answers: Arc<Mutex<Vec<Answered>>>,
}

impl Dialer {
    /// Threads that end with the dialer. `url` takes `application/sdp` and gives 201 with an answer.
    pub(crate) fn new(url: &str) -> Self {
        let (requests, taken) = mpsc::channel();
        let answers = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::new(Mutex::new(taken));
        let agent = ureq::Agent::new_with_config(
            ureq::Agent::config_builder()
                .timeout_global(Some(Duration::from_secs(10)))
                .http_status_as_error(false)
                .max_idle_connections_per_host(THREADS)
                .build(),
        );
        for _ in 0..THREADS {
            let (agent, url, taken, answered) =
                (agent.clone(), url.to_owned(), Arc::clone(&taken), Arc::clone(&answers));
            thread::spawn(move || serve(&agent, &url, &taken, &answered));
        }
        Self { requests, answers }
    }

    pub(crate) fn offer(&self, caller: usize, sdp: String) {
        let _ = self.requests.send(Request::Offer { caller, sdp });
    }

    pub(crate) fn hang_up(&self, location: String) {
        let _ = self.requests.send(Request::HangUp { location });
    }

    /// The answers that are there.
    pub(crate) fn answers(&self) -> Vec<Answered> {
        match self.answers.try_lock() {
            Ok(mut answers) => std::mem::take(&mut *answers),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => Vec::new(),
        }
    }
}

fn serve(agent: &ureq::Agent, url: &str, requests: &Mutex<Receiver<Request>>, answers: &Mutex<Vec<Answered>>) {
    loop {
        let next = match requests.lock() {
            Ok(requests) => requests.recv(),
            Err(_) => return,
        };
        match next {
            Ok(Request::Offer { caller, sdp }) => {
                let answered = Answered { caller, result: post(agent, url, &sdp) };
                let Ok(mut answers) = answers.lock() else { return };
                answers.push(answered);
            }
            Ok(Request::HangUp { location }) => {
                // The server may have ended it by itself.
                let _ = agent.delete(absolute(url, &location)).call();
            }
            Err(_) => return,
        }
    }
}

fn post(agent: &ureq::Agent, url: &str, sdp: &str) -> anyhow::Result<(String, Option<String>)> {
    let mut response = agent.post(url).content_type("application/sdp").send(sdp).context("posting an offer")?;
    let location = response.headers().get("location").and_then(|l| l.to_str().ok()).map(str::to_owned);
    let status = response.status();
    let body = response.body_mut().read_to_string().context("reading an answer")?;
    if status.as_u16() != 201 {
        bail!("{url} answers {status}: {}", body.chars().take(300).collect::<String>());
    }
    Ok((body, location))
}

/// A Location may be a path of the same host (RFC 9110 §10.2.2).
fn absolute(url: &str, location: &str) -> String {
    if location.contains("://") {
        return location.to_owned();
    }
    let host = url.find("://").map_or(0, |at| at + 3);
    let path = url[host..].find('/').map_or(url.len(), |at| host + at);
    format!("{}{location}", &url[..path])
}

#[cfg(test)]
mod tests {
    use super::absolute;

    #[test]
    fn a_location_without_a_host_is_of_the_same_host() {
        assert_eq!(
            absolute("http://127.0.0.1:8080/v1/calls?model=echo", "/v1/calls/7"),
            "http://127.0.0.1:8080/v1/calls/7"
        );
        assert_eq!(absolute("http://127.0.0.1:8080", "/7"), "http://127.0.0.1:8080/7");
        assert_eq!(absolute("http://a/b", "http://c/d"), "http://c/d");
    }
}
