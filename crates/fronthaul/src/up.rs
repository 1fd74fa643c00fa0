//! `fronthaul up`: an edge and a transceiver as child processes that start and end together.
//!
//! Nothing is written but the state directory that the children keep themselves: they get their config as `--set`
//! options. Their logs go to standard error, each line with its origin; standard output has the banner alone.
//!
//! # Invariant
//!
//! When this process ends, however it ends, so do the children: in order on a signal or when one of them dies, and by
//! the kernel's hand when this one is killed.

mod agent;
mod child;
mod plan;
mod probe;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use daemon::StartError;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{sleep, timeout};

use crate::cli::UpOptions;
use agent::Agent;
use child::{Announced, Child};
use plan::Plan;

/// A first start makes keys and certificates; on a loaded machine that took below 2 s.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// The edge gives running calls 10 s by default.
const STOPPED_WITHIN: Duration = Duration::from_secs(15);

/// Runs both until a signal, or until one of them ends.
pub(crate) fn run(options: &UpOptions) -> Result<(), StartError> {
    let mut plan = Plan::new(options)?;
    // One thread, the main one, because the kernel takes the thread that spawns a child for its parent.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| StartError::failed("starting the runtime", error))?;
    runtime.block_on(run_all(&mut plan, options.agent.as_deref()))
}

async fn run_all(plan: &mut Plan, agent: Option<&str>) -> Result<(), StartError> {
    let mut stop = Stop::new().map_err(|error| StartError::failed("installing signal handlers", error))?;
    if let Some(name) = agent {
        tokio::select! {
            () = start_agent(name, plan) => {}
            () = stop.asked() => return Ok(()),
        }
    }
    let mut transceiver = Child::spawn("transceiver", &plan.transceiver_arguments(), None)?;
    let mut edge = None;
    let outcome = serve(plan, &mut stop, &mut transceiver, &mut edge).await;

    // The edge first: it ends its calls in order while the transceiver still answers.
    let in_order = async {
        if let Some(edge) = &mut edge {
            edge.end(STOPPED_WITHIN).await;
        }
        transceiver.end(STOPPED_WITHIN).await;
    };
    tokio::select! {
        () = in_order => {}
        // Dropping a child that still runs kills it.
        () = stop.insisted() => {}
    }
    outcome
}

/// An agent that cannot be had is no reason to end: parrot answers, and says nothing of it, so this does.
async fn start_agent(name: &str, plan: &mut Plan) {
    child::show("agent", &format!("setting up {name}"));
    match Agent::start(name, &plan.agents_dir()).await {
        Ok(agent) => {
            plan.agent_listens(&agent.name, agent.address);
            // It lives as long as the runtime: it answers as long as there are calls.
            tokio::spawn(agent.watch());
        }
        Err(reason) => plan.agent_fails(name, reason),
    }
}

/// Starts the edge, which has to know where the transceiver listens, and returns when both are asked to stop or one of the
/// two has ended.
async fn serve(
    plan: &mut Plan,
    stop: &mut Stop,
    transceiver: &mut Child,
    edge: &mut Option<Child>,
) -> Result<(), StartError> {
    let announced = transceiver.announced();
    let ports = tokio::select! {
        ports = listening("transceiver", announced) => ports?,
        () = stop.asked() => return Ok(()),
        ended = transceiver.ended() => return Err(ended.into_error()),
    };
    plan.transceiver_listens(&ports);
    let edge = edge.insert(Child::spawn("edge", &plan.edge_arguments(), plan.edge_environment())?);
    let announced = edge.announced();
    let ready = async {
        let ports = listening("edge", announced).await?;
        plan.edge_listens(&ports);
        until_ready(plan).await
    };
    tokio::select! {
        ready = ready => ready?,
        () = stop.asked() => return Ok(()),
        ended = edge.ended() => return Err(ended.into_error()),
        ended = transceiver.ended() => return Err(ended.into_error()),
    }
    // A closed standard output is no reason to end.
    let _ = writeln!(io::stdout(), "{plan}");
    tokio::select! {
        () = stop.asked() => Ok(()),
        ended = edge.ended() => Err(ended.into_error()),
        ended = transceiver.ended() => Err(ended.into_error()),
    }
}

/// What a daemon says of its ports. Of one that says nothing because it ends, its end is the news, so this waits on.
async fn listening(name: &str, announced: Announced) -> Result<Vec<(String, SocketAddr)>, StartError> {
    match timeout(READY_WITHIN, announced).await {
        Ok(Ok(ports)) => Ok(ports),
        Ok(Err(_)) => std::future::pending().await,
        Err(_) => {
            let what = format!("{name} is not ready after {} s", READY_WITHIN.as_secs());
            Err(StartError::failed(what, "it does not say where it listens"))
        }
    }
}

async fn until_ready(plan: &Plan) -> Result<(), StartError> {
    const PAUSE: Duration = Duration::from_millis(50);
    let daemons = [("transceiver", plan.transceiver_admin), ("edge", plan.edge_admin)];
    for (name, admin) in daemons {
        let mut last = String::new();
        let ready = async {
            while let Err(reason) = probe::ready(admin).await {
                last = reason;
                sleep(PAUSE).await;
            }
        };
        if timeout(READY_WITHIN, ready).await.is_err() {
            let what = format!("{name} is not ready after {} s", READY_WITHIN.as_secs());
            return Err(StartError::failed(what, last.trim()));
        }
    }
    Ok(())
}

/// SIGTERM and SIGINT of this process. The children are in process groups of their own, so that Ctrl-C in a terminal
/// reaches them through here, in order, alone.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// As in the daemons, the second signal changes nothing and the third ends at once.
    async fn insisted(&mut self) {
        self.asked().await;
        self.asked().await;
    }
}
