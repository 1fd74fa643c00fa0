// Round trips from the answer, or from the click, until a real Chromium has media, its channel and the server's first message,
// through a proxy of 100 ms round trip; counted in the proxy's packet log (count.mjs). Exits with 1 when a bound is missed.

import { writeFileSync, readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { openBrowser } from "../browser/lib/browser.mjs";
import { startProxy, startServers, tcpPort, udpPort } from "../browser/lib/servers.mjs";
import { silence } from "../browser/lib/speech.mjs";
import { chain, depths, median, missing, roundTrips } from "./count.mjs";
import * as inPage from "./page.mjs";
import { listing, table, timeline } from "./report.mjs";

const HELP = `usage: tests/rtt/run [--json] [--docs] [--runs N] [--only NAME]...

Sets up calls with a real Chromium through a proxy that delays each direction by 50 ms and counts the round trips of each in
the proxy's packet log. Prints a table, or with --json { cases: [{ name, rtt_to_media, rtt_to_open, rtt_to_first_message,
runs }] }; null is what never came. Exits with 1 when a bound is missed.

--docs writes docs/SETUP.md's table and the pictures beside it. --runs: how many per case (10). --only: cases by name.
--packets prints each packet of each run, with its depth.
`;

const WAY_MS = 50;
const PATIENCE_MS = 8000;
const BROWSERS = {
  stock: [],
  snap: ["--enable-features=WebRtcSctpSnap"],
  warp: ["--force-fieldtrials=WebRTC-IceHandshakeDtls/Enabled/", "--enable-features=WebRtcSctpSnap", "--disable-features=WebRtcPqcForDtls"],
  "warp-pqc": ["--force-fieldtrials=WebRTC-IceHandshakeDtls/Enabled/", "--enable-features=WebRtcSctpSnap"],
};
const SPED_OFF = ["a=ice-options:"];
const SNAP_OFF = ["a=sctp-init:"];

/**
 * `bounds` are in round trips; `within` in ms, for every run; `agreed` is what must stand in offer and answer. Pictures are
 * drawn of the cases with a `picture`.
 */
const CASES = [
  { name: "stock", title: "stock Chromium", browser: "stock", bounds: { media: 2.3, open: 4.3 }, picture: "Stock browser" },
  { name: "snap", title: "SNAP alone", browser: "snap", agreed: { snap: true }, page: { stream: 0 }, bounds: { media: 2.3, open: 2.3 }, picture: "SNAP" },
  { name: "warp", title: "SPED + SNAP, post-quantum off", browser: "warp", agreed: { sped: true, snap: true }, page: { stream: 0 }, bounds: { open: 1.25 }, picture: "SPED + SNAP" },
  { name: "warp-pqc", title: "SPED + SNAP, post-quantum on", browser: "warp-pqc", agreed: { sped: true, snap: true }, page: { stream: 0 }, bounds: { open: 2 } },
  { name: "posted", title: "from the click: SPED + SNAP, offer posted", browser: "warp", script: "module", from: "click", agreed: { sped: true, snap: true, instant: false }, bounds: { message: 3.2 } },
  { name: "instant", title: "from the click: SPED + SNAP, ticket", browser: "warp", script: "module", from: "click", page: { ticket: true }, agreed: { sped: true, snap: true, instant: true }, bounds: { message: 2.2 }, picture: "Instant, from the click" },
  { name: "sped-unanswered", title: "SPED browser, edge without SPED", browser: "warp", page: { offer: SPED_OFF }, bounds: { media: 2.3, open: 4.3 } },
  { name: "sped-answer-lost", title: "answer that lost its ice-options", browser: "warp", page: { answer: SPED_OFF }, bounds: { media: 2.3, open: 4.3 } },
  { name: "snap-offer-lost", title: "SNAP stripped from the offer", browser: "warp", page: { offer: SNAP_OFF }, bounds: { media: 2.3, open: 4.3 } },
  { name: "snap-answer-lost", title: "SNAP stripped from the answer", browser: "warp", page: { answer: SNAP_OFF }, bounds: { media: 2.3, open: 4.3 } },
  { name: "warp-loss", title: "SPED + SNAP, 20 % loss", browser: "warp", agreed: { sped: true, snap: true }, page: { stream: 0 }, lossPercent: 20, within: 1000 },
];

const { values: options } = parseArgs({
  options: {
    json: { type: "boolean" },
    docs: { type: "boolean" },
    help: { type: "boolean", short: "h" },
    runs: { type: "string", default: "10" },
    only: { type: "string", multiple: true },
    packets: { type: "boolean" },
  },
});
if (options.help) {
  process.stdout.write(HELP);
  process.exit(0);
}
const count = Number(options.runs);
const chosen = CASES.filter(({ name }) => !options.only || options.only.includes(name));
if (!(count >= 1) || !chosen.length) {
  process.stderr.write(`--runs takes a number from 1 on, --only names among: ${CASES.map(({ name }) => name).join(", ")}\n`);
  process.exit(2);
}
const say = (text) => options.json || process.stdout.write(text);

const udp = await udpPort();
const tcp = await tcpPort();
// The answers name the proxy, so the page needs to change nothing.
const servers = await startServers({ edge: `public = ["127.0.0.1:${udp}"]` });
const results = [];
try {
  for (const [name, args] of Object.entries(BROWSERS)) {
    const cases = chosen.filter(({ browser }) => browser === name);
    if (!cases.length) continue;
    const browser = await openBrowser(silence(60), { args });
    try {
      for (const one of cases) results.push(await measure(one, browser.context));
    } finally {
      await browser.close();
    }
  }
} finally {
  await servers.stop();
}
results.sort((a, b) => chosen.findIndex(({ name }) => name === a.name) - chosen.findIndex(({ name }) => name === b.name));
if (options.json) process.stdout.write(`${JSON.stringify({ cases: results.map(({ shown, ...result }) => result) }, null, 2)}\n`);
else say(`\n${table(results)}\n`);
if (options.docs) document(results);
const missed = results.flatMap(({ missed }) => missed);
for (const line of missed) process.stderr.write(`missed: ${line}\n`);
process.exitCode = missed.length ? 1 : 0;

async function measure(one, context) {
  const runs = [];
  for (let n = 0; n < count; n++) {
    const run = await once(one, context, n + 1);
    runs.push(run);
    say(n === 0 ? `${one.title} ` : "");
    say(run.fault ? "x" : ".");
  }
  say("\n");
  if (options.packets) runs.forEach((run) => process.stderr.write(`\n${one.name}, run ${run.seed}\n${listing(run)}`));
  const to = (event) => {
    const reached = runs.map(({ rtt }) => rtt[event]).filter(Boolean);
    // A median needs more than half; of a case in which a run failed the others still say something.
    return reached.length * 2 > runs.length ? roundTrips(reached) : null;
  };
  const elapsed = (event) => {
    const reached = runs.map(({ ms }) => ms[event]).filter((ms) => ms !== undefined);
    return reached.length ? Math.round(median(reached)) : null;
  };
  const result = {
    name: one.name,
    title: one.title,
    rtt_to_media: to("media"),
    rtt_to_open: to("open"),
    rtt_to_first_message: to("message"),
    runs: runs.length,
    failed: runs.filter(({ fault }) => fault).length,
    ms_to_media: elapsed("media"),
    ms_to_open: elapsed("open"),
    ms_to_first_message: elapsed("message"),
    slowest_ms_to_open: Math.max(...runs.map(({ ms }) => ms.open ?? Infinity)),
    bounds: { ...one.bounds, ...(one.within ? { every_run_ms: one.within } : {}) },
    counts: runs.map(({ rtt, fault }) => ({ ...rtt, ...(fault ? { fault } : {}) })),
  };
  result.missed = misses(one, result, runs);
  // The picture is of a run as the median has it, the quickest of these.
  const typical = runs.filter(({ rtt }) => rtt.open?.chain === result.rtt_to_open).sort((a, b) => a.ms.message - b.ms.message);
  result.shown = one.picture && typical[0] ? { title: one.picture, ...typical[0] } : undefined;
  return result;
}

function misses({ name, bounds = {}, within, agreed = {} }, result, runs) {
  const found = [];
  const fields = { media: "rtt_to_media", open: "rtt_to_open", message: "rtt_to_first_message" };
  for (const [event, most] of Object.entries(bounds)) {
    const took = result[fields[event]];
    if (took === null || took > most) found.push(`${name}: ${event} after ${took ?? "never"} round trips, bound ${most}`);
  }
  for (const { fault } of runs) if (fault) found.push(`${name}: ${fault}`);
  if (within) for (const { ms, seed } of runs) if (!(ms.open <= within)) found.push(`${name}: a run took ${ms.open} ms (seed ${seed}), bound ${within}`);
  for (const [what, wanted] of Object.entries(agreed)) {
    if (runs.some((run) => run.agreed && run.agreed[what] !== wanted)) found.push(`${name}: ${what} was not agreed`);
  }
  return found;
}

async function once(one, context, seed) {
  const { name, page: edits = {}, lossPercent = 0, script = "plain", from = "answer", bounds = {} } = one;
  const proxy = await startProxy(servers.media, { port: udp, delayMs: WAY_MS, lossPercent, seed, http: { port: tcp, to: servers.http } });
  const page = await context.newPage();
  try {
    // A document of the edge's own, so that its connection is warm and nothing asks for permission across origins.
    await page.goto(`http://127.0.0.1:${tcp}/assets/style.css`);
    const { marks, agreed } = await page.evaluate(inPage[script], { model: "parrot", patience: PATIENCE_MS, ...edits });
    return count_(proxy.packets(), marks, from, bounds, { seed, agreed });
  } catch (error) {
    return { rtt: {}, ms: {}, seed, fault: `run ${seed}: ${error.message.split("\n")[0]}`, name };
  } finally {
    await page.close();
    await proxy.stop();
  }
}

/** Both counts of each event of one run, and the time from `from` in ms. */
function count_(packets, marks, from, bounds, more) {
  const start = marks[from] * 1000;
  const since = packets.filter(({ t_us, edge_us }) => Math.max(t_us, edge_us) >= start);
  const media = (dir) => since.find((packet) => packet.kind === "srtp" && packet.dir === dir && !packet.dropped)?.t_us;
  const both = media("up") !== undefined && media("down") !== undefined;
  const at = {
    speak: media("up"),
    // Media is there when it flows both ways.
    media: both ? Math.max(media("up"), media("down")) : undefined,
    // A page's clock has 100 us.
    open: marks.open && marks.open * 1000 + 100,
    message: marks.message && marks.message * 1000 + 100,
  };
  const events = Object.keys(at).filter((event) => at[event] !== undefined);
  const times = events.map((event) => at[event]);
  const all = depths(since, start, times);
  const causes = chain(since);
  // The first audio of ours is an event of its own: it may be what tells the client's depth.
  const audio = since.find((packet) => packet.kind === "srtp" && packet.dir === "down" && !packet.dropped);
  const counted = depths(audio ? [...causes, audio] : causes, start, times);
  const rtt = Object.fromEntries(events.map((event, n) => [event, { chain: counted[n], all: all[n] }]));
  const ms = Object.fromEntries(events.map((event) => [event, Math.round((at[event] - start) / 100) / 10]));
  const never = missing(bounds, rtt);
  const fault = never && `run ${more.seed}: within ${PATIENCE_MS} ms ${never}`;
  return { rtt, ms, packets: since, start, at, fault, ...more };
}

function document(found) {
  const root = new URL("../../docs/", import.meta.url);
  const shown = found.map((result) => result.shown).filter(Boolean);
  if (shown.length) writeFileSync(new URL("performance/setup.svg", root), timeline(shown, WAY_MS));
  const path = new URL("SETUP.md", root);
  const text = readFileSync(path, "utf8");
  const [begin, end] = ["<!-- rtt: from here", "<!-- rtt: to here -->"];
  const at = text.indexOf("\n", text.indexOf(begin)) + 1;
  writeFileSync(path, `${text.slice(0, at)}\n${table(found)}\n${text.slice(text.indexOf(end))}`);
}
