// Networks that block UDP: run by tests/run in a network namespace whose address is ADDRESS, with rules of its own.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { openHarness } from "../lib/browser.mjs";
import { sleep, until } from "../lib/servers.mjs";
import { concat, fromRecording, median, prompt, silence, spans, windows } from "../lib/speech.mjs";

const ADDRESS = process.env.ADDRESS;
const BIN = join(process.env.FRONTHAUL_BIN, "fronthaul");
const SECRET = "north";
// Ports of the relay: its own packets reach the edge, as those of a server outside do.
const RELAY = [49160, 49200];
const folder = mkdtempSync(join(tmpdir(), "fronthaul-reach-"));
const said = prompt("tt-weasels");

const nft = (...args) => execFileSync("nft", args);

before(async () => {
  assert.ok(ADDRESS, "tests/run makes the namespace and names its address in ADDRESS");
  nft("add", "table", "inet", "blocked");
  nft("add", "chain", "inet", "blocked", "input", "{ type filter hook input priority 0; }");
  nft(..."add rule inet blocked input udp dport 3478 udp sport !=".split(" "), RELAY.join("-"), "drop");
  execFileSync("openssl", [
    ..."req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=turn.test".split(" "),
    ...["-addext", `subjectAltName=IP:${ADDRESS}`],
    ...["-keyout", join(folder, "turn.key"), "-out", join(folder, "turn.crt")],
  ]);
  // As docs/OPERATIONS.md has it, with the ports of the test.
  writeFileSync(
    join(folder, "turnserver.conf"),
    `listening-ip=${ADDRESS}\nrelay-ip=${ADDRESS}\ntls-listening-port=5349\nno-udp\nno-tcp\nno-dtls\n` +
      `cert=${folder}/turn.crt\npkey=${folder}/turn.key\nuse-auth-secret\nstatic-auth-secret=${SECRET}\nrealm=turn.test\n` +
      `min-port=${RELAY[0]}\nmax-port=${RELAY[1]}\nno-cli\nno-multicast-peers\nlog-file=stdout\npidfile=${folder}/pid\n`,
  );
});
after(() => {
  nft("delete", "table", "inet", "blocked");
  rmSync(folder, { recursive: true, force: true });
});

async function withEdge(settings, work) {
  let log = "";
  const set = settings.flatMap((setting) => ["--edge-set", setting]);
  const up = spawn(BIN, ["up", "--advertise", ADDRESS, "--state-dir", join(folder, "state"), "--edge-set", "auth.open=true", ...set]);
  for (const stream of [up.stdout, up.stderr]) stream.on("data", (text) => (log += text));
  const exited = new Promise((resolve) => up.once("exit", resolve));
  try {
    await until("the page", async () => (await fetch(`http://127.0.0.1:9080/readyz`)).ok, { ms: 30_000 });
    await work(() => log);
  } catch (error) {
    console.error(log);
    throw error;
  } finally {
    up.kill("SIGTERM");
    assert.equal(await exited, 0, log);
  }
}

const doctor = (...args) =>
  new Promise((resolve) => {
    const child = spawn(BIN, ["doctor", "--json", "--timeout-ms", "1500", ...args]);
    let out = "";
    child.stdout.on("data", (text) => (out += text));
    child.once("exit", (code) => resolve({ code, report: JSON.parse(out) }));
  });

/**
 * One exchange with the parrot, which the user begins to speak `lead` seconds after the microphone is on: by the harness or, with
 * `module`, by fronthaul.js. Gives the selected pair.
 */
async function converse(url, { servers = false, module = false, lead = 1 }, switches = []) {
  const { page, close } = await openHarness(concat(silence(lead), said, silence(6)), { loopback: false, args: switches });
  try {
    const iceServers = servers ? await page.evaluate((from) => window.call.iceServers(from), url) : [];
    const opening = page.evaluate((o) => (o.module ? window.call.connectModule({ url: o.url }) : window.call.connect(o)), { url, iceServers, module });
    const { opened, answer, channel } = await opening;
    await sleep(1000 * (2 * (said.length / 16000) + lead + 2));
    const stats = await page.evaluate(() => window.call.stats());
    const byId = (id) => stats.find((entry) => entry.id === id);
    const pair = byId(stats.find(({ type }) => type === "transport").selectedCandidatePairId);
    const [, heard] = (await page.evaluate(() => window.call.recording())).map(fromRecording);
    const [reply] = spans(heard);
    const same = windows(heard, reply.from, said, 0, said.length).map(({ correlation }) => correlation);
    console.log(`open after ${(opened ?? channel).toFixed(0)} ms, correlation ${same.map((value) => value.toFixed(2)).join(" ")}`);
    assert.ok(median(same) >= 0.7, `median correlation ${median(same)}`);
    await page.evaluate(() => window.call.hangUp());
    return { answer, local: byId(pair.localCandidateId), remote: byId(pair.remoteCandidateId) };
  } finally {
    await close();
  }
}

test("with UDP dropped a stock Chromium holds a conversation over ICE-TCP on the signaling port", async () => {
  await withEdge(["tls.mode=self_signed"], async () => {
    const url = `https://${ADDRESS}:8080`;
    const { answer, remote } = await converse(url, {}, ["--ignore-certificate-errors"]);
    assert.match(answer, /a=candidate:\S+ 1 tcp \d+ \S+ 8080 typ host tcptype passive/);
    assert.equal(`${remote.protocol} ${remote.port}`, "tcp 8080");

    const { code, report } = await doctor(url, "--insecure");
    assert.deepEqual([code, report.ways.UDP.state, report.ways.TCP.state], [0, "fails", "works"]);
    assert.match(report.ways.UDP.detail, /UDP is blocked/);
  });
});

/** With coturn, of which alone the edge without ICE-TCP is in reach. */
async function withRelay(work) {
  const coturn = spawn("turnserver", ["-c", join(folder, "turnserver.conf")]);
  const exited = new Promise((resolve) => coturn.once("exit", resolve));
  let log = "";
  for (const stream of [coturn.stdout, coturn.stderr]) stream.on("data", (text) => (log += text));
  const servers = `ice_servers=[{ urls = ["turns:${ADDRESS}:5349?transport=tcp"], secret = "${SECRET}" }]`;
  try {
    await withEdge(["tls.mode=self_signed", "ice_tcp=off", servers], async () => {
      const url = `https://${ADDRESS}:8080`;
      await until("coturn", async () => (await doctor(url, "--insecure")).report.ways["TURN-TLS"].state === "works");
      await work(url);
    });
  } catch (error) {
    console.error(log);
    throw error;
  } finally {
    coturn.kill();
    await exited;
  }
}

test("with UDP dropped and no ICE-TCP Chromium holds a conversation through TURN over TLS", async () => {
  await withRelay(async (url) => {
    const { local } = await converse(url, { servers: true }, ["--ignore-certificate-errors"]);
    assert.deepEqual([local.candidateType, local.relayProtocol], ["relay", "tls"]);
    const { code, report } = await doctor(url, "--insecure");
    assert.deepEqual([code, report.ways.TCP.state, report.ways["TURN-TLS"].state], [0, "absent", "works"]);
  });
});

test("fronthaul.js finds the relay that the edge names by itself and holds a conversation through it", async () => {
  await withRelay(async (url) => {
    // The direct path is given its time first.
    const { local } = await converse(url, { module: true, lead: 6 }, ["--ignore-certificate-errors"]);
    assert.deepEqual([local.candidateType, local.relayProtocol], ["relay", "tls"]);
  });
});

test("with everything dropped the edge and the doctor name the addresses", async () => {
  await withEdge(["ice_tcp=off"], async (log) => {
    const { code, report } = await doctor(`http://127.0.0.1:8080`);
    // A conversation is possible, over WebSocket alone.
    assert.deepEqual([code, report.usable, report.ways.UDP.state, report.ways.WebSocket.state], [0, true, "fails", "works"]);
    assert.match(report.ways.UDP.detail, new RegExp(`${ADDRESS}:3478: no check was answered`));
    // The doctor hangs up; a client that just goes leaves its call unreached.
    const posted = Date.now();
    const headers = { "Content-Type": "application/sdp" };
    const response = await fetch("http://127.0.0.1:8080/v1/realtime/calls", { method: "POST", headers, body: OFFER });
    assert.equal(response.status, 201);
    await until("the warning", () => log().includes("no check reached any advertised address"), { ms: 6000 });
    assert.ok(Date.now() - posted < 5500);
    assert.match(log(), new RegExp(`${ADDRESS}:3478/udp`));
  });
});

const OFFER = `v=0
o=- 1 2 IN IP4 127.0.0.1
s=-
t=0 0
m=audio 9 UDP/TLS/RTP/SAVPF 111
c=IN IP4 0.0.0.0
a=ice-ufrag:abcd
a=ice-pwd:0123456789abcdefghijklmn
a=fingerprint:sha-256 ${Array(32).fill("AB").join(":")}
a=setup:actpass
a=mid:0
a=sendrecv
a=rtcp-mux
a=rtpmap:111 opus/48000/2
`.replaceAll("\n", "\r\n");
