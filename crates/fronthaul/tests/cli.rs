//! The binary as its user meets it: real processes, their messages and exit codes.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

fn fronthaul(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fronthaul"))
        .args(arguments)
        .env_remove("FRONTHAUL_LOG")
        .env("XDG_STATE_HOME", scratch("state"))
        .output()
        .unwrap()
}

fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{}-{name}", std::process::id()))
}

fn refused(arguments: &[&str]) -> String {
    let output = fronthaul(arguments);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(output.stdout.is_empty(), "a refusal belongs on standard error");
    text
}

#[test]
fn the_help_names_the_commands_and_their_options() {
    let output = fronthaul(&["--help"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for command in ["up", "edge", "transceiver", "explain", "keys"] {
        assert!(text.lines().any(|line| line.trim_start().starts_with(command)), "no {command} in\n{text}");
    }
    let text = String::from_utf8(fronthaul(&["up", "--help"]).stdout).unwrap();
    for option in ["--advertise", "--state-dir", "--http", "--media", "--link", "--edge-set"] {
        assert!(text.contains(option), "no {option} in\n{text}");
    }
}

#[test]
fn every_problem_of_a_config_file_is_in_one_message_with_exit_code_2() {
    let file = scratch("edge.toml");
    std::fs::write(&file, "http_bnd = \"127.0.0.1:0\"\nmedia_bind = \"everywhere\"\n[log]\nlevel = \"loud\"\n")
        .unwrap();
    let text = refused(&["edge", "--config", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    assert!(text.starts_with(&format!("fronthaul: 3 problems in {}:", file.display())), "{text}");
    for part in [
        "http_bnd = \"127.0.0.1:0\"  (line 1)",
        "did you mean `http_bind`?",
        "media_bind = \"everywhere\"  (line 2)",
        "invalid socket address syntax",
        "log.level = \"loud\"  (line 4)",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn a_config_file_that_cannot_be_read_is_exit_code_2() {
    for daemon in ["edge", "transceiver"] {
        let text = refused(&[daemon, "--config", "/nowhere/at/all.toml"]);
        assert!(text.contains("/nowhere/at/all.toml") && text.contains("No such file"), "{text}");
    }
}

#[test]
fn check_accepts_the_defaults_and_refuses_what_a_start_would_refuse() {
    for daemon in ["edge", "transceiver"] {
        let output = fronthaul(&[daemon, "--check"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = refused(&[daemon, "--check", "--set", "id=0"]);
        assert!(text.contains("id = 0  (given with --set)"), "{text}");
    }
}

#[test]
fn one_address_cannot_hold_the_default_seats_of_anybody_with_calls_that_it_never_connects() {
    let edge = edge::Config::default();
    let share = edge.limits.unclaimed_calls_per_source;
    let seats = [edge.echo_seats, transceiver::Config::default().seats];
    assert!(seats.iter().all(|seats| 2 * share <= *seats), "{share} of {seats:?}");
}

#[test]
fn up_names_every_port_that_is_taken_and_who_has_it() {
    let http = TcpListener::bind("127.0.0.1:0").unwrap();
    let link = UdpSocket::bind("127.0.0.1:0").unwrap();
    let [http_address, link_address] =
        [http.local_addr(), link.local_addr()].map(|address| address.unwrap().to_string());
    let free = "127.0.0.1:0";
    let text = refused(&[
        "up",
        "--http",
        &http_address,
        "--link",
        &link_address,
        "--media",
        free,
        "--edge-admin",
        free,
        "--transceiver-admin",
        free,
    ]);
    let holder = format!("address in use by process {} (", std::process::id());
    assert_eq!(text.matches(&holder).count(), 2, "{text}");
    for part in ["2 problems", &format!("--http = \"{}\"", http_address), &format!("--link = \"{link_address}\"")] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn a_daemon_names_the_key_whose_port_is_taken() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for daemon in ["edge", "transceiver"] {
        let mut arguments = vec![daemon.to_owned()];
        let free = if daemon == "edge" { vec!["media_bind", "http_bind"] } else { vec!["link_bind"] };
        arguments.extend(free.iter().flat_map(|key| ["--set".to_owned(), format!("{key}=127.0.0.1:0")]));
        arguments.extend(["--set".to_owned(), format!("admin_bind={address}")]);
        let text = refused(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(text.contains(&format!("admin_bind = \"{address}\"")), "{text}");
        assert!(text.contains("address in use by process"), "{text}");
    }
}

#[test]
fn a_daemon_that_took_free_ports_says_which() {
    let state = scratch("announce");
    for (daemon, names) in [("edge", &["http", "admin", "media"][..]), ("transceiver", &["link", "admin"])] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fronthaul"));
        command.args([daemon, "--announce", "--set", &format!("state_dir={}", state.display())]);
        for name in names {
            command.args(["--set", &format!("{name}_bind=127.0.0.1:0")]);
        }
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let daemon = loadgen::process::Daemon::announced(daemon, child, None).unwrap();
        assert!(names.iter().all(|name| daemon.port(name).unwrap().port() != 0), "{daemon:?}");
        assert!(!loadgen::process::metrics(daemon.port("admin").unwrap()).unwrap().is_empty());
    }
    std::fs::remove_dir_all(&state).unwrap();
}

fn keys(arguments: &[&str], file: &std::path::Path) -> Output {
    fronthaul(&[&["keys"], arguments, &["--file", file.to_str().unwrap()]].concat())
}

#[test]
fn keys_are_made_shown_and_rotated_and_no_secret_is_printed() {
    let file = scratch("pop-keys").join("pop.keys");
    let missing = keys(&["show"], &file);
    let text = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(missing.status.code(), Some(2), "{text}");
    assert!(text.contains("no such file") && text.contains("fronthaul keys new --file"), "{text}");

    let mut printed = Vec::new();
    for arguments in [&["new"][..], &["show"], &["rotate"], &["show"]] {
        let output = keys(arguments, &file);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        printed.push(String::from_utf8(output.stdout).unwrap());
    }
    assert!(printed[1].lines().any(|line| line.starts_with(" 0 ") && line.contains("signs")), "{}", printed[1]);
    let rotated: Vec<&str> = printed[3].lines().skip(2).collect();
    assert!(rotated[0].starts_with(" 1 ") && rotated[0].contains("signs in"), "{}", printed[3]);
    assert!(rotated[1].starts_with(" 0 ") && rotated[1].contains(" signs "), "{}", printed[3]);

    let text = std::fs::read_to_string(&file).unwrap();
    let secrets = text.lines().filter(|line| !line.starts_with('#')).flat_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        [words[3].to_owned(), words[5].to_owned()]
    });
    for secret in secrets {
        assert!(printed.iter().all(|text| !text.contains(&secret)));
    }
    for (arguments, reason) in [(&["new"][..], "--replace"), (&["rotate"], "another rotation before that")] {
        let refused = keys(arguments, &file);
        let text = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(2) && text.contains(reason), "{text}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "a refusal changes nothing");
    assert!(keys(&["new", "--replace"], &file).status.success());

    // What is left of a file when the disk was full: a line is cut, or its key is.
    let whole = std::fs::read_to_string(&file).unwrap();
    let refused = |arguments: &[&str], length: usize| {
        std::fs::write(&file, &whole[..length]).unwrap();
        let output = keys(arguments, &file);
        let text = String::from_utf8(output.stderr).unwrap();
        let fix = format!("fronthaul keys new --replace --file {}", file.display());
        assert!(output.status.code() == Some(2) && text.contains(&fix), "{arguments:?} at {length}: {text}");
    };
    for length in [whole.len() - 5, whole.len() - 41, whole.len() / 2, 80, 0] {
        refused(&["show"], length);
    }
    refused(&["rotate"], whole.len() / 2);
    assert!(keys(&["new", "--replace"], &file).status.success(), "what the message says");
    assert!(keys(&["show"], &file).status.success());
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
}

#[test]
fn explain_says_what_keeps_it_from_the_records_and_what_to_do() {
    // Nobody listens on it: it was bound and is closed again.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = fronthaul(&["explain", "rtc_000000000000000b", "--admin", &format!("http://{free}")]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in [&format!("http://{free}/sessions/rtc_000000000000000b"), "refused", "--admin URL"] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let output = fronthaul(&["explain", "--admin", &format!("http://{free}")]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains(&format!("http://{free}/sessions: ")), "{text}");
    let text = refused(&["explain", "../metrics"]);
    assert!(text.contains("no session id"), "{text}");
    let text = refused(&["explain", "--file", "/nowhere/at/all.jsonl"]);
    assert!(text.contains("/nowhere/at/all.jsonl") && text.contains("No such file"), "{text}");
    let file = scratch("empty.jsonl");
    std::fs::write(&file, "{\"message\":\"transceiver ready\"}\n").unwrap();
    let text = refused(&["explain", "--file", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    assert!(text.contains("no record of a turn") && text.contains("log.format"), "{text}");
}

#[test]
fn a_token_is_signed_under_the_secret_of_the_config_and_an_argument_is_no_place_for_one() {
    let output =
        fronthaul(&["token", "sign", "--set", "auth.token_secret=0123456789abcdef0123456789abcdef", "--sub", "ada"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let token = String::from_utf8(output.stdout).unwrap();
    assert_eq!(token.trim().split('.').count(), 3, "{token}");
    let refused = fronthaul(&["token", "sign", "--secret", "0123456789abcdef0123456789abcdef"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && text.contains("env:NAME") && !text.contains("0123456789"), "{text}");
    let nameless = fronthaul(&["token", "sign", "--set", "auth.token_secret=x", "--max-concurrent", "1"]);
    assert!(String::from_utf8_lossy(&nameless.stderr).contains("--sub"));
    assert!(String::from_utf8_lossy(&fronthaul(&["token", "sign"]).stderr).contains("--config"));
}
