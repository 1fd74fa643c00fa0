"""The corpus, made at test time and kept outside the checkout: WAV at 16 kHz, mono, in `prompts`, `voices` and `hums`.

Prompts are of the Debian package asterisk-core-sounds-en-g722 (one real speaker, CC-BY-SA-3.0), their texts of its companion
asterisk-core-sounds-en; voices are espeak-ng and flite.
"""

import gzip
import json
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

PACKAGES = ["asterisk-core-sounds-en-g722", "asterisk-core-sounds-en", "ffmpeg", "espeak-ng", "flite"]
SOUNDS = Path("/usr/share/asterisk/sounds/en")
TEXTS = Path("/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz")
# Raised whenever what is made here changes.
VERSION = "3"
# Of longer ones the recognizer may give the first sentence alone.
MAX_SECONDS = 14
MAX_PROMPTS = 300

SENTENCES = [
    "I would like to change my appointment from Tuesday to Thursday afternoon.",
    "Could you tell me how far it is to the nearest station?",
    "No, wait, that is not what I meant.",
    "Please send the report to my colleague before noon.",
    "What is the weather going to be like this weekend?",
    "Stop, let me ask something else first.",
    "There are seven people in our group, and two of them are children.",
    "My order number ends with nine four six.",
]
# "Mm-hm" and "mm" in sounds: as text the voices spell them. For espeak-ng and for flite.
HUMS = [("m:h'm:", "m hh m"), ("m'm:", "m m")]
ESPEAK = ["en-us", "en-gb", "en-us+f3", "en-gb-scotland"]
FLITE = ["slt", "rms", "awb", "kal16"]


def make(cache):
    """The folder of the corpus and the prompts' texts by name."""
    corpus = cache / f"corpus-{VERSION}"
    if not (corpus / "texts.json").exists():
        shutil.rmtree(corpus, ignore_errors=True)
        for folder in ("prompts", "voices", "hums"):
            (corpus / folder).mkdir(parents=True)
        with ThreadPoolExecutor(2) as pool:
            texts = prompts(corpus / "prompts", pool)
            list(pool.map(lambda job: job(), [*voices(corpus / "voices"), *hums(corpus / "hums")]))
        (corpus / "texts.json").write_text(json.dumps(texts))
    return corpus, json.loads((corpus / "texts.json").read_text())


def prompts(folder, pool):
    texts = {}
    for line in gzip.open(TEXTS, "rt", encoding="utf-8", errors="replace"):
        name, _, text = line.strip().partition(": ")
        # What is in brackets or signs is not said as it is written.
        if name.startswith(";") or re.search(r"[^A-Za-z0-9 .,'?!:;-]", text):
            continue
        if (SOUNDS / f"{name}.g722").exists():
            texts[name] = text
    longest = sorted(texts, key=lambda name: (-len(texts[name].split()), name))
    seconds = dict(pool.map(lambda name: (name, decode(name, folder)), longest))
    kept = [name for name in longest if seconds[name] <= MAX_SECONDS][:MAX_PROMPTS]
    for name in set(longest) - set(kept):
        wav(folder, name).unlink()
    return {wav(folder, name).stem: texts[name] for name in kept}


def wav(folder, name):
    return folder / f"{name.replace('/', '_')}.wav"


def decode(name, folder):
    target = wav(folder, name)
    run("ffmpeg", "-v", "error", "-f", "g722", "-i", SOUNDS / f"{name}.g722", "-ar", "16000", "-ac", "1", "-bitexact", target)
    return (target.stat().st_size - 44) / 32000


def voices(folder):
    """One job for each sentence and voice."""
    for number, text in enumerate(SENTENCES):
        for voice in ESPEAK:
            yield partial(speak, folder / f"espeak-{voice}-{number}.wav", "espeak-ng", "-v", voice, text, "-w")
        for voice in FLITE:
            yield partial(speak, folder / f"flite-{voice}-{number}.wav", "flite", "-voice", voice, "-t", text, "-o")


def hums(folder):
    for number, (espeak, flite) in enumerate(HUMS):
        for voice in ESPEAK:
            yield partial(speak, folder / f"espeak-{voice}-{number}.wav", "espeak-ng", "-v", voice, f"[[{espeak}]]", "-w")
        for voice in FLITE:
            yield partial(speak, folder / f"flite-{voice}-{number}.wav", "flite", "-voice", voice, "-p", f"pau {flite} pau", "-o")


def speak(target, *command):
    made = target.with_suffix(".made")
    run(*command, made)
    run("ffmpeg", "-v", "error", "-i", made, "-ar", "16000", "-ac", "1", "-bitexact", target)
    made.unlink()


def run(*command):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip()}")
