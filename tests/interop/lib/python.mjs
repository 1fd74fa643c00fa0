// Clients in Python, in an environment of their own.

import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { run } from "./client.mjs";
import { KEY, MODEL } from "./edge.mjs";
import { said } from "./speech.mjs";

const path = (name) => new URL(`../python/${name}`, import.meta.url).pathname;

/** The interpreter with the SDKs; made once for each list of requirements. */
export function python() {
  const wanted = path("requirements.txt");
  const digest = createHash("sha256").update(readFileSync(wanted)).digest("hex").slice(0, 12);
  const folder = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "fronthaul", "interop", digest);
  const interpreter = join(folder, "bin", "python");
  if (existsSync(join(folder, "complete"))) return interpreter;
  rmSync(folder, { recursive: true, force: true });
  // Standard output is for results.
  const stdio = ["ignore", 2, 2];
  execFileSync("python3", ["-m", "venv", folder], { stdio });
  const install = "-m pip install --quiet --disable-pip-version-check --require-hashes --only-binary=:all: --no-deps -r";
  execFileSync(interpreter, [...install.split(" "), wanted], { stdio });
  writeFileSync(join(folder, "complete"), "");
  return interpreter;
}

/** Runs `python/NAME.py` against servers of its own. */
export const client = (name, file) => async () => {
  const interpreter = python();
  let version = "-";
  return run({ name, version: () => version }, async (_, edge, steps) => {
    const speech = join(edge.folder, "speech.pcm");
    writeFileSync(speech, said("tt-weasels"));
    const env = { ...process.env, PYTHONDONTWRITEBYTECODE: "1", FRONTHAUL_URL: edge.url, FRONTHAUL_KEY: KEY, FRONTHAUL_MODEL: MODEL, FRONTHAUL_SPEECH: speech };
    const { out, err } = await finished(spawn(interpreter, [path(file)], { env, timeout: 120_000 }));
    if (!out) throw new Error(`no result: ${err}`);
    const result = JSON.parse(out);
    version = result.version;
    steps.push(...result.steps);
    if (result.error) throw new Error(`${result.error}\n${err.slice(-4000)}`);
    return result.events;
  });
};

async function finished(child, input) {
  const told = { out: "", err: "" };
  child.stdout.setEncoding("utf8").on("data", (part) => (told.out += part));
  child.stderr.setEncoding("utf8").on("data", (part) => (told.err += part));
  child.stdin.end(input);
  await new Promise((resolve, reject) => child.once("close", resolve).once("error", reject));
  return told;
}

/** Gives `input` to `python/NAME.py` and reads the JSON that it prints. */
export async function ask(file, input) {
  const { out, err } = await finished(spawn(python(), [path(file)]), input);
  if (!out) throw new Error(`no result: ${err}`);
  return JSON.parse(out);
}
