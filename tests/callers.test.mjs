// 20 callers at once on a WebRTC stack that is not ours, each with a recording of its own: each hears its own speech only.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { startServers } from "./browser/lib/servers.mjs";
import { prompt, writeWav } from "./browser/lib/speech.mjs";

const PROMPTS = [
  ...["vm-intro", "auth-incorrect", "tt-weasels", "agent-pass", "conf-getconfno", "cannot-complete-as-dialed", "queue-youarenext"],
  ...["vm-rec-name", "invalid", "demo-nomatch", "ss-noservice", "vm-starmain", "vm-whichbox", "vm-review-urgent"],
  ...["conf-noempty", "vm-mailboxfull", "vm-saveoper", "agent-newlocation", "agent-incorrect", "vm-tempgreeting"],
];

test("20 callers at once hear their own speech and nobody else's", async () => {
  const folder = mkdtempSync(join(tmpdir(), "fronthaul-callers-"));
  const recordings = PROMPTS.map((name) => {
    const path = join(folder, `${name}.wav`);
    writeWav(path, prompt(name));
    return path;
  });
  const servers = await startServers();
  try {
    const callers = join(process.env.FRONTHAUL_BIN, "fronthaul-callers");
    const { stdout, stderr } = await promisify(execFile)(callers, ["--url", servers.url, ...recordings], { timeout: 120_000 });
    assert.match(stderr, /^DTLS: Ossl/m, "callers built with --features openssl");
    const lines = JSON.parse(stdout);
    console.table(
      lines.map(({ recording, ...rest }, n) => ({ prompt: PROMPTS[n], ...rest, own: rest.own.toFixed(2), other: rest.other.toFixed(2) })),
    );
    assert.equal(lines.length, PROMPTS.length);
    lines.forEach(({ own, other }, n) => {
      assert.ok(own >= 0.7, `${PROMPTS[n]}: ${own} with its own speech`);
      assert.ok(other <= 0.3, `${PROMPTS[n]}: ${other} with somebody else's`);
    });
  } catch (error) {
    console.error(servers.logs());
    throw error;
  } finally {
    await servers.stop();
    rmSync(folder, { recursive: true, force: true });
  }
});
