// Runs each client against servers of its own, one after the other, and says what came of it.

import { websockets, ws } from "./clients/compression.mjs";
import { events } from "./clients/events.mjs";
import { pipecat } from "./clients/smallwebrtc.mjs";
import { agents, plain } from "./clients/webrtc.mjs";
import { agents as agentsOverWebSocket, openai } from "./clients/websocket.mjs";
import { client } from "./lib/python.mjs";

/** Events of the API that the clients got. */
const recorded = [];

const CLIENTS = {
  "agents-chromium": () => agents("chromium"),
  "agents-firefox": () => agents("firefox"),
  "plain-chromium": () => plain("chromium"),
  "plain-firefox": () => plain("firefox"),
  "pipecat-chromium": pipecat,
  "agents-node": agentsOverWebSocket,
  "openai-node": openai,
  "ws-node": ws,
  "websockets-python": websockets,
  "openai-python": client("openai (Python) realtime client", "openai_realtime.py"),
  "agents-python": client("openai-agents (Python) realtime runner", "openai_agents.py"),
  "livekit-python": client("livekit-plugins-openai realtime model", "livekit_plugin.py"),
  "pipecat-python": client("pipecat-ai OpenAI realtime service", "pipecat_service.py"),
  events: () => events(recorded),
};
/** Some events come only over WebRTC. */
const NEEDS = { events: "plain-chromium" };

const words = process.argv.slice(2);
const json = words.includes("--json");
const named = words.filter((word) => !word.startsWith("--"));
const unknown = named.filter((name) => !CLIENTS[name]);
if (unknown.length) {
  console.error(`no client ${unknown.join(", ")}: choose from ${Object.keys(CLIENTS).join(", ")}`);
  process.exit(2);
}
const wanted = new Set([...named, ...named.map((name) => NEEDS[name])]);
const clients = [];
for (const name of Object.keys(CLIENTS).filter((name) => !named.length || wanted.has(name))) {
  if (!json) console.log(`\n${name}`);
  const { events: seen, ...client } = await CLIENTS[name]();
  recorded.push(...seen);
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
