// Real recorded prompts, and what the tests measure on audio. PCM is Float32Array at 16 kHz.

import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";

export const RATE = 16000;
const PROMPTS = "/usr/share/asterisk/sounds/en";

/** Decodes a prompt of the Debian package asterisk-core-sounds-en-g722. */
export function prompt(name) {
  const raw = execFileSync(
    "ffmpeg",
    ["-v", "error", "-f", "g722", "-i", `${PROMPTS}/${name}.g722`, "-f", "s16le", "-ar", `${RATE}`, "-ac", "1", "-"],
    { maxBuffer: 64 << 20 },
  );
  return trim(fromPcm16(raw));
}

function fromPcm16(bytes) {
  const pcm = new Int16Array(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + (bytes.length & ~1)));
  return Float32Array.from(pcm, (sample) => sample / 32768);
}

/** Cuts silence at both ends. */
function trim(pcm) {
  const voiced = spans(pcm);
  return pcm.slice(voiced[0].from, voiced.at(-1).to);
}

export const silence = (seconds) => new Float32Array(Math.round(seconds * RATE));

export function concat(...parts) {
  const whole = new Float32Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Writes 48 kHz mono i16, which Chromium's fake microphone plays. */
export function writeWav(path, pcm) {
  const samples = pcm.length * 3;
  const wav = Buffer.alloc(44 + samples * 2);
  wav.write("RIFF", 0);
  wav.writeUInt32LE(36 + samples * 2, 4);
  wav.write("WAVEfmt ", 8);
  wav.writeUInt32LE(16, 16);
  wav.writeUInt16LE(1, 20);
  wav.writeUInt16LE(1, 22);
  wav.writeUInt32LE(48000, 24);
  wav.writeUInt32LE(96000, 28);
  wav.writeUInt16LE(2, 32);
  wav.writeUInt16LE(16, 34);
  wav.write("data", 36);
  wav.writeUInt32LE(samples * 2, 40);
  for (let i = 0; i < samples; i++) {
    const at = i / 3;
    const left = pcm[Math.floor(at)];
    const right = pcm[Math.min(Math.ceil(at), pcm.length - 1)];
    const sample = left + (right - left) * (at - Math.floor(at));
    wav.writeInt16LE(Math.max(-32767, Math.min(32767, Math.round(sample * 32767))), 44 + i * 2);
  }
  writeFileSync(path, wav);
}

/** A recording of the harness: base64 of 48 kHz i16, decimated to 16 kHz by averaging three samples. */
export function fromRecording(base64) {
  const at48k = fromPcm16(Buffer.from(base64, "base64"));
  return Float32Array.from({ length: Math.floor(at48k.length / 3) }, (_, i) =>
    (at48k[3 * i] + at48k[3 * i + 1] + at48k[3 * i + 2]) / 3,
  );
}

const FRAME = RATE / 100;

/** RMS of each 10 ms. */
function levels(pcm) {
  return Array.from({ length: Math.floor(pcm.length / FRAME) }, (_, n) => {
    let sum = 0;
    for (let i = n * FRAME; i < (n + 1) * FRAME; i++) sum += pcm[i] * pcm[i];
    return Math.sqrt(sum / FRAME);
  });
}

/** Sounding spans in samples: above `threshold` RMS per 10 ms, joined over gaps shorter than `gap` seconds. */
export function spans(pcm, { threshold = 0.01, gap = 0.45, least = 0.05 } = {}) {
  const found = [];
  levels(pcm).forEach((level, n) => {
    if (level < threshold) return;
    const last = found.at(-1);
    if (last && n * FRAME - last.to < gap * RATE) last.to = (n + 1) * FRAME;
    else found.push({ from: n * FRAME, to: (n + 1) * FRAME });
  });
  return found.filter(({ from, to }) => to - from >= least * RATE);
}

/**
 * Compares what was heard with what was said, window by window: the best normalized correlation of each 500 ms of `heard`
 * from `heardAt` on with `said` from `saidAt` on, within +-60 ms of lag.
 */
export function windows(heard, heardAt, said, saidAt, length) {
  const size = RATE / 2;
  const reach = 0.06 * RATE;
  const found = [];
  for (let at = 0; at + size <= length; at += size) {
    let best = { correlation: -1, lag: 0 };
    for (let lag = -reach; lag <= reach; lag++) {
      const correlation = normalized(heard, heardAt + at + lag, said, saidAt + at, size);
      if (correlation > best.correlation) best = { correlation, lag };
    }
    found.push(best);
  }
  return found;
}

function normalized(a, fromA, b, fromB, size) {
  let [ab, aa, bb] = [0, 0, 0];
  for (let i = 0; i < size; i++) {
    const x = a[fromA + i] ?? 0;
    const y = b[fromB + i] ?? 0;
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa && bb ? ab / Math.sqrt(aa * bb) : 0;
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
