//! A stream without loss and jitter: nothing waits.

use crate::corpus::Corpus;
use crate::figure::{Figure, held};
use crate::uplink::{deliver, encode};

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
    Ok(vec![
        held("repair.added_ms", waited as f64 / 48.0, "ms", 0.0, note),
        held(
            "repair.concealed_without_loss_ms",
            concealed as f64 / 48.0,
            "ms",
            0.0,
            "made up although nothing was lost",
        ),
    ])
}
