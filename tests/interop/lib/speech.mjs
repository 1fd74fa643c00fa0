// What clients over WebSocket say: recorded prompts as PCM16 at 24 kHz, sent as a microphone would.

import { execFileSync } from "node:child_process";
import { prompt, RATE } from "../../browser/lib/speech.mjs";

/** Bytes of 20 ms. */
const CHUNK = 24 * 20 * 2;

/** A prompt of the Debian package asterisk-core-sounds-en-g722, without the silence around it. */
export function said(name) {
  const samples = Int16Array.from(prompt(name), (sample) => Math.round(sample * 32767));
  const arguments_ = `-v error -f s16le -ar ${RATE} -ac 1 -i - -f s16le -ar 24000 -ac 1 -`;
  return execFileSync("ffmpeg", arguments_.split(" "), { input: Buffer.from(samples.buffer), maxBuffer: 64 << 20 });
}

/** Calls `send` with 20 ms of audio each 20 ms: what was last given to `say`, else silence. */
export function openMicrophone(send) {
  const began = performance.now();
  let sent = 0;
  let speech = Buffer.alloc(0);
  const timer = setInterval(() => {
    for (; sent < (performance.now() - began) / 20; sent++) {
      const chunk = Buffer.alloc(CHUNK);
      speech.copy(chunk, 0, 0, CHUNK);
      speech = speech.subarray(CHUNK);
      send(chunk);
    }
  }, 20);
  return { say: (pcm) => (speech = pcm), close: () => clearInterval(timer) };
}
