// Thousands of connections to the port of HTTPS and ICE-TCP that come to nothing, beside a call. `CONNECTIONS=10000 node --test
// tests/browser/crowd.test.mjs` is the long form.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { openHarness } from "./lib/browser.mjs";
import { ownAddress } from "./lib/firefox.mjs";
import { sleep, startProxy, startServers, udpPort, until } from "./lib/servers.mjs";
import { silence } from "./lib/speech.mjs";

const CONNECTIONS = Number(process.env.CONNECTIONS ?? 3000);
/** Each opens a part: no process needs more than 4096 descriptors. */
const PROCESSES = Math.ceil(CONNECTIONS / 2500);
/** At the edge at once (`MAX_CONNECTIONS`), each for as long as it may be silent; the others wait in the kernel. */
const PLACES = 1024;
const PER_SOURCE = 256;
/** For its first words and, in TLS, its handshake. */
const SILENT_MS = 5000;

let servers;
let proxy;
let browser;
let control;
before(async () => {
  const port = await udpPort();
  servers = await startServers({ edge: `ice_tcp = "on"\npublic = ["127.0.0.1:${port}"]\n[tls]\nmode = "self_signed"` });
  proxy = await startProxy(servers.media, { port });
  browser = await openHarness(silence(300));
  control = await startControl();
});
after(async () => {
  await control?.stop();
  await browser?.close();
  await proxy?.stop();
  await servers.stop();
});

/** A packet each 20 ms through a proxy to a plain UDP echo: what this machine does to echoes at the time of the call's. */
async function startControl() {
  const echo = spawn(`${process.env.FRONTHAUL_BIN}/fronthaul`, ["bench", "echo"], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = await echo.stdout.setEncoding("utf8").take(1).toArray();
  const way = await startProxy(Number(line.trim().split(":").at(-1)));
  const socket = createSocket("udp4");
  // Begins as RTP does, so that the proxy's log takes it for that.
  const timer = setInterval(() => socket.send(Buffer.alloc(120, 0x80), way.port, "127.0.0.1"), 20);
  return {
    packets: way.packets,
    stop: async () => {
      clearInterval(timer);
      socket.close();
      echo.kill();
      await way.stop();
    },
  };
}

const crowd = async (count) => {
  const program = fileURLToPath(new URL("lib/crowd.mjs", import.meta.url));
  const part = (n) => Math.floor((count * (n + 1)) / PROCESSES) - Math.floor((count * n) / PROCESSES);
  const parts = Array.from({ length: PROCESSES }, (_, n) => promisify(execFile)(process.execPath, [program, `${servers.http}`, `${part(n)}`, `${n + 1}`]));
  const found = (await Promise.all(parts)).map(({ stdout }) => JSON.parse(stdout));
  const sum = (name) => found.reduce((all, one) => all + one[name], 0);
  return { opened: sum("opened"), closed: sum("closed"), lost: sum("lost"), failed: sum("failed"), answered: sum("answered"), longest: Math.max(...found.map(({ longest }) => longest)) };
};

/** The time of the last packet (us). */
const clock = (way) => way.packets().at(-1).t_us;

/** Echoed packets on this way from `from` (us) on: how many, and how long the 99th of 100 took, in ms. */
function echoes(way, from) {
  const audio = way.packets().filter(({ kind, t_us }) => kind === "srtp" && t_us >= from);
  const down = audio.filter(({ dir }) => dir === "down").map(({ t_us }) => t_us);
  let at = 0;
  const took = [];
  for (const { t_us } of audio.filter(({ dir }) => dir === "up")) {
    while (at < down.length && down[at] < t_us) at += 1;
    if (at < down.length) took.push((down[at] - t_us) / 1000);
  }
  took.sort((a, b) => a - b);
  return { sent: audio.length - down.length, came: down.length, p99: took[Math.floor(0.99 * took.length)] };
}

const refused = (edge) => Object.fromEntries(Object.entries(edge).flatMap(([name, value]) => (/^fronthaul_edge_connections_refused_total\{reason="(\w+)"\}$/.exec(name) ? [[RegExp.$1, value]] : [])));

test(`${CONNECTIONS} connections that come to nothing are closed in their time, in bounded memory, and no call notices`, async () => {
  await browser.page.evaluate((url) => window.call.connectModule({ url, model: "echo" }), `http://127.0.0.1:${servers.http}`);
  await sleep(2000);
  const both = [proxy, control];
  let since = both.map(clock);
  await sleep(5000);
  const [quiet, still] = both.map((way, n) => echoes(way, since[n]));
  const before = (await servers.metrics()).edge;

  since = both.map(clock);
  const began = performance.now();
  let peak = before;
  let done = false;
  const watch = (async () => {
    while (!done) {
      const { edge } = await servers.metrics();
      if (edge.process_resident_memory_bytes > peak.process_resident_memory_bytes) peak = edge;
      peak.fds = Math.max(peak.fds ?? 0, edge.process_open_fds);
      await sleep(250);
    }
  })();
  const found = await crowd(CONNECTIONS);
  done = true;
  await watch;
  const took = performance.now() - began;
  const [crowded, noise] = both.map((way, n) => echoes(way, since[n]));
  const kib = (peak.process_resident_memory_bytes - before.process_resident_memory_bytes) / 1024;
  console.log(
    `${found.closed} of ${CONNECTIONS} accepted and closed, ${found.lost + found.failed} lost in the kernel, in ${(took / 1000).toFixed(1)} s, the longest lasted ${found.longest} ms; ` +
      `${peak.fds - before.process_open_fds} descriptors and ${kib.toFixed(0)} KiB more at most: ${(kib / PLACES).toFixed(1)} KiB each; ` +
      `echoes of the call: p99 ${quiet.p99.toFixed(2)} ms before, ${crowded.p99.toFixed(2)} ms meanwhile (plain UDP ${still.p99.toFixed(2)}, ${noise.p99.toFixed(2)}), ${crowded.came} of ${crowded.sent} came`,
  );
  assert.ok(found.closed >= 0.5 * CONNECTIONS, `${found.closed} of ${CONNECTIONS} got as far as the edge`);
  assert.equal(found.answered, 0, "nothing is said to a stranger");
  assert.ok(peak.fds <= before.process_open_fds + PLACES + 32, `${peak.fds} descriptors`);
  assert.ok(kib <= PLACES * 40, `${kib} KiB`);
  // Each place is free again when its time is over; a minute is the kernel's, which repeats what it dropped later and later.
  const most = Math.ceil(CONNECTIONS / PLACES) * 2 * SILENT_MS + 60_000;
  assert.ok(took <= most, `all took ${took} ms`);
  assert.ok(crowded.came >= 0.99 * crowded.sent, `${crowded.came} of ${crowded.sent} packets came back`);
  // What a plain echo was held up by at the same time is the machine's doing.
  const machine = Math.max(0, noise.p99 - still.p99);
  assert.ok(crowded.p99 <= quiet.p99 + machine + 20, `p99 ${quiet.p99} ms, then ${crowded.p99} ms, of which ${machine} ms are the machine's`);
  const counted = async () => {
    const reasons = refused((await servers.metrics()).edge);
    return ["silent", "forged", "tls"].reduce((sum, reason) => sum + reasons[reason], 0);
  };
  await until("a count of each", async () => (await counted()) >= found.closed);
  assert.equal(await browser.page.evaluate(() => window.call.ours.state), "connected");
  await browser.page.evaluate(() => window.call.hangUp());
  await until("the last descriptor", async () => (await servers.metrics()).edge.process_open_fds <= before.process_open_fds + 4, { ms: 20_000 });
});

test("one source has no more than its share of the places, and leaves the others to others", async () => {
  const address = ownAddress();
  const shared = await startServers({ httpHost: "0.0.0.0" });
  try {
    let closed = 0;
    const open = (host) =>
      new Promise((resolve) => {
        const socket = connect({ port: shared.http, host });
        socket.on("error", () => {}).on("close", () => (closed += 1)).resume();
        socket.on("connect", () => resolve(socket));
      });
    const sockets = await Promise.all(Array.from({ length: 2 * PER_SOURCE }, () => open(address)));
    await until("those beyond its share", () => closed >= PER_SOURCE, { ms: 4000 });
    // From elsewhere.
    assert.equal((await fetch(`http://127.0.0.1:${shared.http}/fronthaul.js`)).status, 200);
    await until("their count", async () => refused((await shared.metrics()).edge).crowded >= PER_SOURCE);
    assert.equal(refused((await shared.metrics()).edge).crowded, PER_SOURCE, "the others had their places");
    sockets.forEach((socket) => socket.destroy());
  } finally {
    await shared.stop();
  }
});
