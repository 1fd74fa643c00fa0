// `up --advertise` as other machines see it: run by tests/run in a network namespace whose address is ADDRESS, with Chromium as
// it is shipped, which pairs with no loopback candidate.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { openHarness } from "../lib/browser.mjs";
import { sleep, until } from "../lib/servers.mjs";
import { concat, fromRecording, median, prompt, silence, spans, windows } from "../lib/speech.mjs";

const ADDRESS = process.env.ADDRESS;
const folder = mkdtempSync(join(tmpdir(), "fronthaul-up-"));
const url = `http://${ADDRESS}:8080`;

let up;
let log = "";
let key;
before(async () => {
  assert.ok(ADDRESS, "tests/run makes the namespace and names its address in ADDRESS");
  up = spawn(join(process.env.FRONTHAUL_BIN, "fronthaul"), ["up", "--advertise", ADDRESS, "--state-dir", folder]);
  up.stdout.on("data", (text) => (log += text));
  up.stderr.on("data", (text) => (log += text));
  key = (await until("the banner", () => /#key=(\S+)/.exec(log)))[1];
});
after(async () => {
  up.kill("SIGTERM");
  const code = await new Promise((resolve) => up.once("exit", resolve));
  rmSync(folder, { recursive: true, force: true });
  assert.equal(code, 0, log);
});

test("a browser of another machine talks to the parrot of `up --advertise`", async () => {
  const said = prompt("tt-weasels");
  const { page, close } = await openHarness(concat(silence(1), said, silence(6)), { loopback: false });
  try {
    const { answer } = await page.evaluate((options) => window.call.connect(options), { url, key });
    const candidates = answer.match(/^a=candidate:.*/gm);
    const address = ADDRESS.replaceAll(".", "\\.");
    assert.equal(candidates.length, 2, candidates.join());
    assert.match(candidates[0], new RegExp(` udp \\d+ ${address} 3478 typ host`));
    assert.match(candidates[1], new RegExp(` tcp \\d+ ${address} 8080 typ host tcptype passive`));
    await sleep(1000 * (2 * (said.length / 16000) + 3));
    const [, heard] = (await page.evaluate(() => window.call.recording())).map(fromRecording);
    const [reply] = spans(heard);
    const same = windows(heard, reply.from, said, 0, said.length).map(({ correlation }) => correlation);
    console.log(`correlation by window: ${same.map((value) => value.toFixed(2)).join(" ")}`);
    assert.ok(median(same) >= 0.7, `median correlation ${median(same)}`);
    await page.evaluate(() => window.call.hangUp());
  } catch (error) {
    console.error(log);
    throw error;
  } finally {
    await close();
  }
});

test("without the key that the banner shows nobody is answered", async () => {
  for (const Authorization of ["", "Bearer wrong"]) {
    const response = await fetch(`${url}/v1/realtime/calls`, { method: "POST", headers: { Authorization, "Content-Type": "application/sdp" }, body: "v=0" });
    assert.equal(response.status, 401);
    assert.match((await response.json()).error.message, /key/);
  }
});

test("the link and the admin ports stay on loopback", async () => {
  for (const port of [9080, 9081]) {
    assert.ok((await fetch(`http://127.0.0.1:${port}/healthz`)).ok);
    await assert.rejects(fetch(`http://${ADDRESS}:${port}/healthz`));
  }
});
