"""One client's run: steps in their order, each with its time; the first that fails ends it. What run.mjs reads is JSON on standard output."""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import sys
import time
import traceback
from pathlib import Path

URL = os.environ["FRONTHAUL_URL"]
KEY = os.environ["FRONTHAUL_KEY"]
MODEL = os.environ["FRONTHAUL_MODEL"]
RATE = 24000
# What is said: PCM16 at 24 kHz.
WEASELS = Path(os.environ["FRONTHAUL_SPEECH"]).read_bytes()
CHUNK = RATE // 50 * 2


class Run:
    def __init__(self):
        self.steps = []
        self.events = []

    @contextlib.asynccontextmanager
    async def step(self, title):
        """Carries out and notes one step; what is put into the dict that it gives are its figures."""
        entry = {"title": title, "ok": False}
        self.steps.append(entry)
        began = time.monotonic()
        figures = {}
        yield figures
        entry.update(ok=True, ms=round((time.monotonic() - began) * 1000))
        if figures:
            entry["figures"] = figures

    def saw(self, event):
        """Notes an event of the API that the client got, as it came."""
        self.events.append(event)

    def last(self, kind):
        return next(event for event in reversed(self.events) if event["type"] == kind)

    def count(self, kind):
        return sum(event["type"] == kind for event in self.events)

    async def cut(self):
        """Waits until what was said last is truncated; gives where, in ms."""
        item = self.last("response.output_audio.delta")["item_id"]
        kind = "conversation.item.truncated"
        cuts = await until(kind, lambda: [event for event in self.events if event["type"] == kind and event["item_id"] == item])
        return cuts[0]["audio_end_ms"]

    async def came(self, kind, count=1):
        """Waits until that many of a kind of event came."""
        await until(f"{kind} ({count})", lambda: self.count(kind) >= count)


async def until(what, probe, seconds=20):
    """Waits until `probe()` gives something truthy, and gives it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := probe():
            return found
        await asyncio.sleep(0.02)
    raise TimeoutError(f"not within {seconds} s: {what}")


class Microphone:
    """Awaits `send(bytes)` with 20 ms of audio each 20 ms: what was last given to `say`, else silence."""

    def __init__(self, send):
        self._send = send
        self._speech = b""

    def say(self, pcm):
        self._speech = pcm

    async def __aenter__(self):
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self):
        began = time.monotonic()
        sent = 0
        while True:
            while sent < (time.monotonic() - began) * 50:
                chunk, self._speech = self._speech[:CHUNK], self._speech[CHUNK:]
                await self._send(chunk.ljust(CHUNK, b"\0"))
                sent += 1
            await asyncio.sleep(0.02)


def main(package, work):
    """Runs `work(run)`, prints `{version, steps, events, error?}` and exits."""
    # SDKs write to standard output too.
    out, sys.stdout = sys.stdout, sys.stderr
    run = Run()
    result = {"version": importlib.metadata.version(package), "steps": run.steps, "events": run.events}

    async def guarded():
        try:
            await work(run)
        except Exception:
            kinds = [event["type"] for event in run.events if not event["type"].endswith(".delta")]
            errors = [event for event in run.events if event["type"] == "error"]
            result["error"] = f"{traceback.format_exc()}it saw {kinds}, errors {errors}"
        json.dump(result, out)
        out.flush()
        # What a client that failed left running is not waited for.
        os._exit(0)

    asyncio.run(guarded())
