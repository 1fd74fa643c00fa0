//! The edge, and transceivers behind it, as a bench starts them: one worker, free ports, a state of their own.

use std::net::SocketAddr;

use super::process::{Placement, Scratch, Server, free_tcp, free_udp, metric};

/// Allocations of the edge's worker threads.
const ALLOCATIONS: &str = "fronthaul_edge_worker_allocations_total";

/// What a transceiver is laid out for.
const SEATS_MOST: usize = 1024;

/// An edge under test.
pub(crate) struct Edge {
    server: Server,
    http: SocketAddr,
    admin: SocketAddr,
    model: &'static str,
}

/// A transceiver behind it.
pub(crate) struct Transceiver {
    pub(crate) server: Server,
    id: usize,
    link: SocketAddr,
}

impl Edge {
    /// An edge with room for `seats` echoed calls, or for those of its transceivers. `set` are further keys.
    pub(crate) fn start(
        placement: &Placement,
        scratch: &Scratch,
        seats: usize,
        transceivers: &[Transceiver],
        set: &[String],
    ) -> anyhow::Result<Self> {
        let (http, admin, media) = (free_tcp()?, free_tcp()?, free_udp()?);
        let listed: Vec<String> =
            transceivers.iter().map(|t| format!("{{ id = {}, address = \"{}\" }}", t.id, t.link)).collect();
        let mut keys = vec![
            format!("http_bind=\"{http}\""),
            format!("admin_bind=\"{admin}\""),
            format!("media_bind=\"{media}\""),
            "workers=1".to_owned(),
            format!("echo_seats={seats}"),
            format!("state_dir=\"{}\"", scratch.0.display()),
            format!("transceivers=[{}]", listed.join(", ")),
            "log.level=\"warn\"".to_owned(),
        ];
        let model = if transceivers.is_empty() { "echo" } else { "loopback" };
        keys.push(format!("models={{ {model} = \"{model}\" }}"));
        keys.push(format!("default_model=\"{model}\""));
        keys.extend_from_slice(set);
        let server = Server::start("edge", placement, placement.server_core, &scratch.0, &arguments("edge", keys))?;
        let mut edge = Self { server, http, admin, model };
        edge.server.ready(admin)?;
        Ok(edge)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Where callers post their offers.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1/realtime/calls?model={}", self.http, self.model)
    }

    /// Allocations of its worker threads so far; none when it does not count them.
    pub(crate) fn allocations(&self) -> anyhow::Result<Option<f64>> {
        metric(self.admin, ALLOCATIONS)
    }
}

impl Transceiver {
    /// `count` transceivers with room for `seats` calls in all, on the generator's core.
    pub(crate) fn start(
        placement: &Placement,
        scratch: &Scratch,
        count: usize,
        seats: usize,
        set: &[String],
    ) -> anyhow::Result<Vec<Self>> {
        let least = seats.div_ceil(SEATS_MOST);
        anyhow::ensure!(count >= least, "{seats} calls need {least} transceivers: choose --transceivers {least}");
        (1..=count)
            .map(|id| {
                let (link, admin) = (free_udp()?, free_tcp()?);
                let mut keys = vec![
                    format!("id={id}"),
                    format!("link_bind=\"{link}\""),
                    format!("admin_bind=\"{admin}\""),
                    "workers=1".to_owned(),
                    format!("seats={}", seats.min(SEATS_MOST)),
                    format!("state_dir=\"{}\"", scratch.0.display()),
                    "log.level=\"warn\"".to_owned(),
                ];
                keys.extend_from_slice(set);
                let core = placement.generator_core;
                let arguments = arguments("transceiver", keys);
                let mut server = Server::start("transceiver", placement, core, &scratch.0, &arguments)?;
                server.ready(admin)?;
                Ok(Self { server, id, link })
            })
            .collect()
    }
}

fn arguments(daemon: &str, keys: Vec<String>) -> Vec<String> {
    let set = keys.into_iter().flat_map(|key| ["--set".to_owned(), key]);
    [daemon.to_owned()].into_iter().chain(set).collect()
}
