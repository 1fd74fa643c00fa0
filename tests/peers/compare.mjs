// Compares echo servers: CPU per packet, round trips, loss, memory.
//
// A round runs every candidate once; rounds follow one another, so that what else the machine does meets all alike. Each
// run starts its server afresh and is one `fronthaul bench peer`, which measures its UDP controls in the same minute.

import { execFile, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { homedir, loadavg, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs, promisify } from "node:util";
import { draw, table } from "./report.mjs";

const HERE = dirname(fileURLToPath(import.meta.url));
const CHECKOUT = join(HERE, "../..");

const HELP = `usage: tests/peers/compare [options]

  --candidates A,B   scripts of this folder; ours, if it is among them, is compared with the others
                     (fronthaul,fronthaul-spin,str0m,pion,janus,aiortc,coturn)
  --sessions N,M     calls at once (50,200,1000)
  --repeats N        rounds for each number of calls (5)
  --seconds S        measured window of each run (10)
  --output FOLDER    gets PERFORMANCE.md's part between its markers, and performance/peers* (docs)
  --no-real-time     servers and generator stay out of the real-time class: other work disturbs them, not they it
  --quick            20 calls for 3 s, ours and str0m, once, into a folder of its own: whether all this works
  --redraw           table and charts again from performance/peers.json; measures nothing

Takes a machine with two cores that has nothing else to do, and time: what is missing is installed and built first; a run
takes about 3 x S seconds. FRONTHAUL_BIN names the folder of a built fronthaul; without it one is built.
`;

/** A server that is this busy, or loses this much, is not asked to carry more calls. */
const SATURATED = ({ cpu_percent, loss }) => cpu_percent >= 93 || loss >= 0.05;

const { values: options } = parseArgs({
  options: {
    candidates: { type: "string" },
    sessions: { type: "string" },
    repeats: { type: "string" },
    seconds: { type: "string" },
    output: { type: "string" },
    "no-real-time": { type: "boolean" },
    quick: { type: "boolean" },
    redraw: { type: "boolean" },
    help: { type: "boolean" },
  },
});

if (options.help) {
  process.stdout.write(HELP);
} else if (options.redraw) {
  const output = options.output ?? join(CHECKOUT, "docs");
  write(output, JSON.parse(readFileSync(join(output, "performance/peers.json"), "utf8")));
} else {
  await main();
}

async function main() {
  const { quick } = options;
  const plan = {
    candidates: (options.candidates ?? (quick ? "fronthaul,str0m" : "fronthaul,fronthaul-spin,str0m,pion,janus,aiortc,coturn")).split(","),
    sessions: (options.sessions ?? (quick ? "20" : "50,200,1000")).split(",").map(Number).sort((a, b) => a - b),
    repeats: Number(options.repeats ?? (quick ? 1 : 5)),
    seconds: Number(options.seconds ?? (quick ? 3 : 10)),
  };
  const scratch = quick && !options.output && mkdtempSync(join(tmpdir(), "fronthaul-compare-"));
  const output = options.output ?? (scratch || join(CHECKOUT, "docs"));
  try {
    if (options["no-real-time"]) process.env.PEER_REAL_TIME = "no";
    process.env.FRONTHAUL_BIN ??= await build();
    for (const candidate of plan.candidates) {
      say(`installing what ${candidate} needs`);
      await finished(join(HERE, candidate), ["install"]);
    }
    // What an interruption leaves is what was measured until then.
    const result = await measure(plan, (sofar) => write(output, sofar));
    if (!result.machine) throw new Error("nothing could be measured");
    process.stdout.write(`${table(result)}\n`);
    if (result.runs.some(({ failure }) => failure)) process.exitCode = 1;
  } finally {
    if (scratch) rmSync(scratch, { recursive: true });
  }
}

/** Builds fronthaul; gives the folder it is in. */
async function build() {
  say("building fronthaul");
  const cache = process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache");
  process.env.CARGO_TARGET_DIR ??= join(cache, "fronthaul/target");
  await finished("cargo", ["build", "--quiet", "--release", "--locked", "--manifest-path", join(CHECKOUT, "Cargo.toml"), "-p", "fronthaul"]);
  return join(process.env.CARGO_TARGET_DIR, "release");
}

/** All rounds; `keep` is told of each. */
async function measure({ candidates, sessions, repeats, seconds }, keep) {
  const result = { date: new Date().toISOString().slice(0, 10), repeats, seconds, load: { before: loadavg()[0] }, peers: {}, runs: [] };
  if (result.load.before > 0.5) say(`the machine has other work: load average ${result.load.before.toFixed(2)}`);
  const saturated = new Set();
  for (const calls of sessions) {
    const runsOf = (candidate) => result.runs.filter((run) => run.candidate === candidate && run.sessions === calls);
    for (let round = 1; round <= repeats; round++) {
      for (const candidate of candidates) {
        const runs = runsOf(candidate);
        // Who failed twice and never did it fails again.
        if (saturated.has(candidate) || (runs.length >= 2 && !runs.some(({ report }) => report))) continue;
        say(`${calls} calls, round ${round} of ${repeats}: ${candidate}`);
        result.runs.push({ candidate, sessions: calls, round, ...(await once(candidate, calls, seconds, result)) });
      }
      result.load.after = loadavg()[0];
      if (result.machine) keep(result);
    }
    for (const candidate of candidates) {
      if (runsOf(candidate).every(({ report }) => !report || SATURATED(report))) saturated.add(candidate);
    }
  }
  return result;
}

/** One run of one candidate: { report }, { failure }, or { passed }: so many calls are not for it. */
async function once(candidate, calls, seconds, result) {
  let peer;
  try {
    peer = await start(candidate);
    if (peer.said.most < calls) return { passed: true };
    const { machine, ...report } = await bench(peer.said, calls, seconds);
    const { core, name, version, forwards, most } = peer.said;
    const { server_core: expected } = machine.placement;
    if (expected !== null && expected !== core) throw new Error(`runs on core ${core}, the controls on ${expected}`);
    result.machine ??= machine;
    result.peers[candidate] = { name, version, forwards, most };
    return { report };
  } catch (error) {
    const failure = (error.stderr || error.message).trim().split("\n").at(-1);
    say(`${candidate}: ${failure}`);
    return { failure };
  } finally {
    await peer?.stop();
  }
}

/** Starts a candidate's script; `said` is what it says when it is ready. */
async function start(candidate) {
  // However this program ends, the script is told to.
  const child = spawn("setpriv", ["--pdeathsig", "TERM", join(HERE, candidate), "start"], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("close", resolve));
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
  };
  const line = new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).once("line", resolve);
    child.once("error", reject);
    ended.then((status) => reject(new Error(`did not start (${status})`)));
  });
  try {
    return { said: JSON.parse(await line), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function bench({ url, pids, namespace, network }, calls, seconds) {
  const command = [join(process.env.FRONTHAUL_BIN, "fronthaul"), "bench", "peer", "--json", "--url", url];
  command.push(...pids.flatMap((pid) => ["--pid", `${pid}`]), "--sessions", `${calls}`, "--seconds", `${seconds}`);
  if (network) command.push("--network", network);
  if (options["no-real-time"]) command.push("--no-real-time");
  // Who is inside a namespace can only be called from inside.
  if (namespace) command.unshift("ip", "netns", "exec", namespace);
  if (namespace && process.getuid() !== 0) command.unshift("sudo", "-E");
  const [program, ...rest] = command;
  // Set-up, three windows with the controls', and patience.
  const { stdout } = await promisify(execFile)(program, rest, { timeout: (4 * seconds + 300) * 1000, maxBuffer: 1 << 26 });
  return JSON.parse(stdout);
}

/** A program that is only waited for; what it prints is shown. */
function finished(program, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: ["ignore", process.stderr, process.stderr] });
    child.once("error", reject);
    child.once("close", (status) => (status === 0 ? resolve() : reject(new Error(`${program} ${args.join(" ")} ends with ${status}`))));
  });
}

function write(output, result) {
  const folder = join(output, "performance");
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "peers.json"), `${JSON.stringify(result, null, 1)}\n`);
  draw(output, result);
}

function say(what) {
  process.stderr.write(`${new Date().toTimeString().slice(0, 8)} ${what}\n`);
}
