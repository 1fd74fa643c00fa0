//! The records of a call, or the calls there are, from an admin port over plain HTTP.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use daemon::StartError;
use serde::de::DeserializeOwned;
use transceiver::record::{ExportedCalls, ExportedSession};

/// Four times the largest answer: 32 turns of 1 KiB and 512 decisions of 250 bytes. A list of calls has 75 KiB.
const ANSWER_MAX: u64 = 1 << 20;

const PATIENCE: Duration = Duration::from_secs(5);

/// Asks for a call's records.
///
/// # Errors
/// What was asked, what came of it, and what to do.
pub(super) fn session(admin: &str, session: &str) -> Result<ExportedSession, StartError> {
    if !session.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(StartError::File(format!("{session:?} is no session id: write rtc_ and 16 hex digits")));
    }
    ask(admin, &format!("/sessions/{session}"))?.ok_or_else(|| {
        StartError::File(format!(
            "{session} is unknown at {admin}: no call of that id goes on there, or ended lately. Another transceiver may have \
             had it (--admin URL), or its log still has it (--file FILE); without SESSION the calls there are listed"
        ))
    })
}

/// Asks which calls there are.
///
/// # Errors
/// As [`session`].
pub(super) fn calls(admin: &str) -> Result<ExportedCalls, StartError> {
    ask(admin, "/sessions")?.ok_or_else(|| StartError::failed("asking for calls", "the answer is about one call"))
}

/// `None`: no call of that id is known.
fn ask<T: DeserializeOwned>(admin: &str, path: &str) -> Result<Option<T>, StartError> {
    let authority = admin.strip_prefix("http://").unwrap_or(admin).trim_end_matches('/');
    if authority.contains('/') || !authority.contains(':') {
        let fix = "write http://host:port, as in http://127.0.0.1:9081";
        return Err(StartError::File(format!("--admin {admin:?} is no admin port: {fix}")));
    }
    let url = format!("http://{authority}{path}");
    let (status, body) = get(authority, path).map_err(|error| {
        StartError::failed(
            format!("asking {url}"),
            format_args!("{error}. Is the transceiver up, and is this its `admin_bind`? Name another by --admin URL"),
        )
    })?;
    match status {
        200 => serde_json::from_str(&body).map(Some).map_err(|error| {
            let reason = format_args!("the answer is no record of this version ({error})");
            StartError::failed(format!("reading {url}"), reason)
        }),
        404 if body.contains("no call") => Ok(None),
        404 => {
            Err(StartError::File(format!("{url} is not there: this is no transceiver's admin port, see --admin URL")))
        }
        _ => Err(StartError::failed(format!("asking {url}"), format_args!("it answered {status}: {}", body.trim()))),
    }
}

/// Status and body.
fn get(authority: &str, path: &str) -> io::Result<(u16, String)> {
    let nothing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let address = authority.to_socket_addrs()?.next().ok_or_else(nothing)?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // HTTP/1.0: the body is as it is, to the end of the connection.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {authority}\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    let status = answer.split_ascii_whitespace().nth(1).and_then(|status| status.parse().ok());
    match (status, answer.split_once("\r\n\r\n")) {
        (Some(status), Some((_, body))) => Ok((status, body.to_owned())),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is no HTTP")),
    }
}
