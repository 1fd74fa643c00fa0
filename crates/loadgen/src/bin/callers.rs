//! `fronthaul-callers`: many callers at once, each with a recording of its own; who hears whom.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use loadgen::{caller, speech};
use serde::Serialize;

/// Calls with one caller per recording at once and prints, as JSON, how like each heard speech is to what was said.
#[derive(Parser)]
struct Options {
    /// The edge's HTTP, e.g. http://127.0.0.1:8080.
    #[arg(long)]
    url: String,
    /// The model to ask for.
    #[arg(long, default_value = "parrot")]
    model: String,
    /// Seconds to listen after the end of the recording, on top of its length.
    #[arg(long, default_value_t = 2.0)]
    listen: f64,
    /// 16-bit mono WAV files at 48 kHz, one per caller.
    #[arg(required = true)]
    recordings: Vec<PathBuf>,
}

/// One caller's result.
#[derive(Serialize)]
struct Line {
    recording: String,
    connected_ms: u128,
    packets: u64,
    events: usize,
    heard_seconds: f64,
    /// Median best correlation with its own recording.
    own: f32,
    /// The same with the most similar of three others'.
    other: f32,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let recordings = options
        .recordings
        .iter()
        .map(|path| Ok(Arc::new(speech::read_wav(path)?)))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let calls: Vec<_> = recordings
        .iter()
        .map(|recording| {
            let listen = Duration::from_secs_f64(options.listen + recording.len() as f64 / 48_000.0);
            let (url, model) = (options.url.clone(), options.model.clone());
            tokio::spawn(caller::run(caller::Config { url, model, speech: recording.clone(), listen }))
        })
        .collect();
    let mut reports = Vec::new();
    for call in calls {
        reports.push(call.await??);
    }

    let said: Vec<Vec<f32>> =
        recordings.iter().map(|pcm| sound_of(&speech::decimate(pcm, 48_000 / speech::RATE))).collect();
    let lines: Vec<Line> = reports
        .iter()
        .enumerate()
        .map(|(n, report)| {
            let heard = sound_of(&speech::decimate(&report.heard, 16_000 / speech::RATE));
            let to = |m: usize| speech::likeness(&heard, &said[m % said.len()]);
            Line {
                recording: options.recordings[n].display().to_string(),
                connected_ms: report.connected.as_millis(),
                packets: report.packets,
                events: report.events.len(),
                heard_seconds: heard.len() as f64 / speech::RATE as f64,
                own: to(n),
                other: (1..said.len().min(4)).map(|step| to(n + step)).fold(0.0, f32::max),
            }
        })
        .collect();
    writeln!(std::io::stderr(), "DTLS: {}", caller::dtls_provider())?;
    serde_json::to_writer_pretty(std::io::stdout().lock(), &lines)?;
    Ok(())
}

fn sound_of(pcm: &[f32]) -> Vec<f32> {
    speech::sounding(pcm).map_or_else(Vec::new, |range| pcm[range].to_vec())
}
