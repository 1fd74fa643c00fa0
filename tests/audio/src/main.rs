//! What a listener notices, measured in virtual time over a corpus that `corpus.py` makes: voice activity, words lost, added
//! delay, interruptions. `run` builds and calls this, counts the words and makes the tables.
//!
//! Prints one JSON object: `figures`, the tables behind them, and the files in `--out` that a recognizer is to read.

mod activity;
mod corpus;
mod cost;
mod delay;
mod edge;
mod enhancement;
mod figure;
mod interruption;
mod noise;
mod uplink;
mod words;

use std::path::PathBuf;

use clap::Parser;
use serde_json::json;

use corpus::Corpus;

#[derive(Debug, Parser)]
#[command(about, long_about = None)]
struct Args {
    /// Folder with `prompts`, `voices` and `hums`, WAV at 16 kHz.
    #[arg(long)]
    corpus: PathBuf,
    /// Where the audio for the recognizer goes.
    #[arg(long)]
    out: PathBuf,
    /// Prompts that go through loss.
    #[arg(long, default_value_t = 20)]
    prompts: usize,
    /// Seeds of losses and noises.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Seconds of each noise and level, for each seed.
    #[arg(long, default_value_t = 60)]
    seconds: usize,
    /// Utterances over a reply.
    #[arg(long, default_value_t = 20)]
    speeches: usize,
    /// Minutes of coughs, keys and "mm-hm".
    #[arg(long, default_value_t = 5)]
    minutes: usize,
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a command's answer and its progress")]
fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let corpus = Corpus::load(&args.corpus)?;
    std::fs::create_dir_all(&args.out)?;
    let mut figures = cost::measure(&corpus, 60);
    eprintln!("voice activity in noise");
    let (of_activity, activity) = activity::measure(&corpus, args.seconds, args.seeds)?;
    figures.extend(of_activity);
    eprintln!("enhancement");
    let (of_enhancement, enhancement) = enhancement::measure(&corpus, args.seconds.min(120))?;
    figures.extend(of_enhancement);
    eprintln!("delay without loss");
    figures.extend(delay::measure(&corpus, args.prompts)?);
    eprintln!("sound over replies");
    let (of_interruption, interruption) = interruption::measure(&corpus, args.speeches, args.minutes)?;
    figures.extend(of_interruption);
    eprintln!("prompts through loss");
    let (of_words, losses, said) = words::measure(&corpus, args.prompts, args.seeds, &args.out)?;
    figures.extend(of_words);
    let answer = json!({
        "figures": figures,
        "activity": activity,
        "interruption": interruption,
        "enhancement": enhancement,
        "losses": losses,
        "said": said,
    });
    println!("{answer}");
    Ok(())
}
