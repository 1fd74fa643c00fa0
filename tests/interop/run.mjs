// Runs each client against servers of its own, one after the other, and says what came of it.

import { agents, plain } from "./clients/webrtc.mjs";

const CLIENTS = {
  "agents-chromium": () => agents("chromium"),
  "agents-firefox": () => agents("firefox"),
  "plain-chromium": () => plain("chromium"),
  "plain-firefox": () => plain("firefox"),
};

const words = process.argv.slice(2);
const json = words.includes("--json");
const wanted = words.filter((word) => !word.startsWith("--"));
const unknown = wanted.filter((name) => !CLIENTS[name]);
if (unknown.length) {
  console.error(`no client ${unknown.join(", ")}: choose from ${Object.keys(CLIENTS).join(", ")}`);
  process.exit(2);
}
const clients = [];
for (const name of wanted.length ? wanted : Object.keys(CLIENTS)) {
  if (!json) console.log(`\n${name}`);
  const client = await CLIENTS[name]();
  clients.push(client);
  if (json) continue;
  console.log(`  ${client.name} ${client.version}`);
  for (const { ok, title, ms, figures } of client.steps) {
    console.log(`  ${ok ? "ok    " : "FAILED"} ${title}${ok ? ` (${ms} ms)` : ""}${figures ? ` ${JSON.stringify(figures)}` : ""}`);
  }
  if (client.error) console.log(client.error);
}
const ok = clients.every((client) => client.ok);
if (json) console.log(JSON.stringify({ ok, clients }, null, 2));
else console.log(`\n${clients.filter((client) => client.ok).length} passed, ${clients.filter((client) => !client.ok).length} failed`);
process.exit(ok ? 0 : 1);
