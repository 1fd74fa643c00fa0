//! What repair costs: nothing in a stream without loss and jitter, a wait where a client sends again or packets are overtaken.

use crate::corpus::Corpus;
use crate::figure::{Figure, held, mean, percentile};
use crate::uplink::{Waits, deliver, disordered, encode};

/// Samples of one stream, at 16 kHz: 9 minutes, which are less than the longest turn.
const MOST: usize = 9 * 60 * 16_000;

/// The longest that a sample of `prompts` prompts waited in repair, and what was made up of them.
pub(crate) fn measure(corpus: &Corpus, prompts: usize) -> anyhow::Result<Vec<Figure>> {
    let (mut waited, mut concealed, mut packets) = (0, 0, 0);
    for clip in corpus.speech().take(prompts) {
        let sent = encode(&clip.pcm, 0)?;
        let heard = deliver(&sent, &vec![false; sent.len()], 0)?;
        waited = waited.max(heard.waited);
        concealed += heard.stats.repair.concealed + heard.stats.repair.fec + heard.stats.repair.red;
        packets += sent.len();
    }
    let note = format!("longest wait of a sample behind the arrival of its packet, {packets} packets");
    let mut figures = vec![
        held("repair.added_ms", waited as f64 / 48.0, "ms", 0.0, note),
        held(
            "repair.concealed_without_loss_ms",
            concealed as f64 / 48.0,
            "ms",
            0.0,
            "made up although nothing was lost",
        ),
    ];
    // Answers that can be waited for, and answers that cannot; packets overtaken beside either.
    for (name, answer_ms, overtaken) in
        [("nack_40_ms", Some(40), false), ("nack_40_ms_reordered", Some(40), true), ("nack_120_ms", Some(120), false)]
    {
        figures.extend(repaired(corpus, prompts, name, answer_ms, overtaken)?);
    }
    figures.extend(repaired(corpus, prompts, "reordered", None, true)?);
    Ok(figures)
}

/// Of `prompts` prompts as one stream, one packet in twenty is lost and comes again `answer_ms` after the hole was seen, or is not lost without; one in thirteen comes
/// 3 ms behind the next if they are overtaken.
fn repaired(
    corpus: &Corpus,
    prompts: usize,
    name: &str,
    answer_ms: Option<u64>,
    overtaken: bool,
) -> anyhow::Result<Vec<Figure>> {
    let clips = corpus.speech().take(prompts);
    let speech: Vec<i16> = clips.flat_map(|clip| clip.pcm.iter().copied()).take(MOST).collect();
    let Waits { mut waited_ms, stats, missing } = disordered(&encode(&speech, 5)?, answer_ms, overtaken)?;
    let added = mean(&waited_ms);
    let longest = percentile(&mut waited_ms, 1.0);
    let made_up = (stats.repair.concealed + stats.repair.fec) / 960;
    let share = 100.0 * made_up as f64 / missing.max(1) as f64;
    // An answer of 40 ms is waited for at each of one packet in twenty, by it and the two behind it; one of 120 ms at the first
    // hole of a call alone. What is overtaken is there 3 ms later.
    let slow = answer_ms.is_some_and(|answer| answer > 60);
    let (most, filled) = if slow { (0.5, 100.0) } else { (8.0, 1.0) };
    let note =
        format!("mean wait of the newest packet, {missing} packets missing or overtaken, longest {longest:.0} ms");
    Ok(vec![
        held(&format!("repair.{name}_added_ms"), added, "ms", most, note),
        held(&format!("repair.{name}_made_up_percent"), share, "%", filled, "of what was missing for a while"),
    ])
}
