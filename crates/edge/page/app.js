// The call of this page, by fronthaul.js; what it looks like is in show.js.
import { Call } from "/fronthaul.js";
import * as show from "./show.js";

// Where other machines reach the edge, the page's address has a key, which no server is told of.
const token = new URLSearchParams(location.hash.slice(1)).get("key") ?? undefined;
let call;

function prepare() {
  call?.close();
  call = new Call({ model: show.model(), token });
  call.addEventListener("state", ({ detail: state }) => show.state(state));
  call.addEventListener("microphone", ({ detail: track }) => show.microphone(track));
  call.addEventListener("track", ({ detail: stream }) => show.agent(stream));
  call.addEventListener("event", ({ detail: event }) => show.event(event));
  call.addEventListener("reconnected", ({ detail }) => show.event({ type: "(reconnected)", ...detail }));
  call.addEventListener("devices", ({ detail: devices }) => show.devices(devices));
  call.addEventListener("error", ({ detail: error }) => show.problem(error.message));
  // With ?warm the connection is there before the click, which then costs no round trip; else an answer is.
  const warm = new URLSearchParams(location.search).has("warm");
  call.prepare(warm ? "connection" : "ticket").catch(({ message }) => show.problem(message));
}

async function toggle() {
  if (!["idle", "ready", "preparing"].includes(call.state)) return prepare();
  show.problem();
  await call.connect().then(({ timings }) => show.setup(timings.connected), ({ code, message }) => code === "closed" || show.problem(message));
}

prepare();
show.controls({ toggle, prepare, mute: () => call.mute(!call.muted), choose: (id) => call.useMicrophone(id) });
setInterval(async () => call.state === "connected" && show.figures(await call.stats()), 1000);
addEventListener("pagehide", () => call.close({ keepalive: true }));
