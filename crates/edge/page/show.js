// What a call looks like: who speaks, the last seconds of sound, figures, events. Knows nothing of connections.

const $ = (id) => document.getElementById(id);
const LOUD = 0.02; // RMS from which a side counts as sounding
const QUIET_MS = 250; // and how long below it until it counts as silent
const MOST_EVENTS = 200;

/** Loudness of one side, and when it last began and stopped sounding. */
class Side {
  constructor(context, stream) {
    this.analyser = new AnalyserNode(context, { fftSize: 1024 });
    context.createMediaStreamSource(stream).connect(this.analyser);
    this.samples = new Float32Array(1024);
    this.level = 0;
    this.sounding = false;
    this.lastLoud = -Infinity;
  }

  measure(now) {
    this.analyser.getFloatTimeDomainData(this.samples);
    this.level = Math.sqrt(this.samples.reduce((sum, sample) => sum + sample * sample, 0) / this.samples.length);
    const was = this.sounding;
    if (this.level >= LOUD) this.lastLoud = now;
    this.sounding = now - this.lastLoud < QUIET_MS;
    return this.sounding && !was;
  }
}

/** The last 12 seconds of both sides: you above the line, the reply below. */
class Strip {
  SPAN_MS = 12_000;
  points = [];

  constructor(canvas) {
    this.canvas = canvas;
  }

  add(now, you, agent) {
    this.points.push({ now, you, agent });
    while (this.points[0].now < now - this.SPAN_MS) this.points.shift();
  }

  draw(now) {
    const { canvas } = this;
    const ratio = devicePixelRatio;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const style = getComputedStyle(canvas);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const middle = height / 2;
    pen.fillStyle = style.getPropertyValue("--line");
    pen.fillRect(0, middle - 0.5, width, 1);
    const bar = Math.max(1.5, (width * 17) / this.SPAN_MS);
    for (const { now: at, you, agent } of this.points) {
      const x = width * (1 - (now - at) / this.SPAN_MS);
      pen.fillStyle = style.getPropertyValue("--you");
      pen.fillRect(x - bar, middle - shown(you) * middle, bar, shown(you) * middle);
      pen.fillStyle = style.getPropertyValue("--agent");
      pen.fillRect(x - bar, middle, bar, shown(agent) * middle);
    }
  }
}

/** Loudness as people hear it: -60..0 dB to 0..1. */
const shown = (level) => Math.max(0, Math.min(1, 1 + Math.log10(Math.max(level, 1e-6)) / 3));

const strip = new Strip($("strip"));
const milliseconds = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
let now = "idle"; // the call's state
let context;
let sides = {};
let began;
let muted = false;

/** The model that is chosen; nothing for the server's default. */
export const model = () => $("model").value || undefined;

const TEXTS = {
  idle: ["Not connected", "Connect, then talk. The parrot says back what it heard; talk over it and it stops."],
  preparing: ["Not connected", "Warming up …"],
  ready: ["Not connected", "Everything is ready: connect, then talk."],
  connecting: ["Connecting …", "Your browser may ask for the microphone."],
  connected: ["Listening", "Say something, then wait a moment."],
  reconnecting: ["Reconnecting …", "The conversation goes on where it was."],
};

/** A state of the call. */
export function state(value) {
  const [before, talking] = [now, ["connected", "reconnecting"].includes(value)];
  now = value;
  say(...TEXTS[value]);
  $("call").firstElementChild.textContent = talking ? "Hang up" : value === "connecting" ? "Cancel" : "Connect";
  $("mute").disabled = !talking;
  document.body.dataset.state = { connecting: "connecting", reconnecting: "connecting", connected: "listening" }[value] ?? "idle";
  if (value === "connecting") {
    began = performance.now();
    clearEvents();
    // In the click, or the browser keeps it silent.
    context ??= new AudioContext();
    context.resume();
  }
  if (!talking && value !== "connecting" && before !== value) {
    sides = {};
    $("mic-level").value = $("out-level").value = 0;
    showMute(false);
    $("microphone").hidden = true;
  }
}

/** The microphone in use. */
export function microphone(track) {
  context ??= new AudioContext();
  sides.you = new Side(context, new MediaStream([track]));
}

/** What the agent says. */
export function agent(stream) {
  context ??= new AudioContext();
  sides.agent = new Side(context, stream);
}

/** Click to open channel, in ms. */
export function setup(ms) {
  $("setup").textContent = milliseconds(ms);
}

/** Why something does not work; nothing takes it away. */
export function problem(text) {
  $("problem").hidden = !text;
  $("problem").textContent = text ?? "";
}

/** Once per second. */
export function figures({ roundTripMs, lossPercent }) {
  if (roundTripMs !== undefined) $("rtt").textContent = milliseconds(roundTripMs);
  if (lossPercent !== undefined) $("loss").textContent = `${lossPercent.toFixed(1)} %`;
}

/** Microphones to choose from, where there are several. */
export function devices({ microphones }) {
  const select = $("microphone");
  const [chosen] = select.selectedOptions;
  select.replaceChildren(...microphones.map(({ deviceId, label }) => new Option(label || "Microphone", deviceId)));
  if (chosen) select.value = chosen.value;
  select.hidden = microphones.length < 2;
}

function say(who, hint) {
  if ($("who").textContent !== who) $("who").textContent = who;
  if (hint !== undefined) $("hint").textContent = hint;
}

function showMute(value) {
  muted = value;
  $("mute").setAttribute("aria-pressed", String(muted));
  $("mute").firstElementChild.textContent = muted ? "Unmute" : "Mute";
}

function frame(at) {
  requestAnimationFrame(frame);
  if (now !== "connected" || !sides.you) return;
  const { you, agent } = sides;
  you.measure(at);
  const replied = agent?.measure(at);
  if (replied && at - you.lastLoud < 10_000) $("reply").textContent = milliseconds(at - you.lastLoud);
  $("mic-level").value = shown(you.level);
  $("out-level").value = shown(agent?.level ?? 0);
  strip.add(at, you.level, agent?.level ?? 0);
  strip.draw(at);
  const look = (value) => (document.body.dataset.state = value);
  if (you.sounding && agent?.sounding) look("you"), say("Both are speaking");
  else if (you.sounding) look("you"), say("You are speaking");
  else if (agent?.sounding) look("agent"), say("The agent is speaking");
  else look("listening"), say(muted ? "Muted" : "Listening");
}
requestAnimationFrame(frame);

function clearEvents() {
  $("events").replaceChildren();
  $("count").textContent = "";
  clearEvents.total = 0;
}

/** An event of the call, as a line that unfolds. */
export function event(event) {
  const item = document.createElement("li");
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  const time = document.createElement("time");
  time.textContent = ((performance.now() - (began ?? performance.now())) / 1000).toFixed(1);
  const type = document.createElement("span");
  type.textContent = event.type;
  type.className = kindOf(event.type);
  summary.append(time, type);
  const body = document.createElement("pre");
  details.append(summary, body);
  // Rendered when it is looked at: a long call has many events.
  details.ontoggle = () => (body.textContent ||= JSON.stringify(event, null, 2));
  item.append(details);
  const list = $("events");
  const following = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  list.append(item);
  if (list.childElementCount > MOST_EVENTS) list.firstElementChild.remove();
  if (following) list.scrollTop = list.scrollHeight;
  clearEvents.total += 1;
  $("count").textContent = String(clearEvents.total);
}

function kindOf(type) {
  if (type === "error") return "error";
  if (type.startsWith("input_audio_buffer")) return "you";
  if (type.startsWith("response") || type.startsWith("output_audio_buffer")) return "agent";
  return "";
}

/** What keys and buttons do. */
export function controls({ toggle, prepare, mute, choose }) {
  const toggleMute = () => showMute(mute());
  $("call").onclick = toggle;
  $("mute").onclick = toggleMute;
  $("model").onchange = () => ["idle", "ready"].includes(now) && prepare();
  $("microphone").onchange = ({ target }) => choose(target.value).catch(({ message }) => problem(message));
  addEventListener("keydown", ({ key, target, ctrlKey, metaKey, altKey }) => {
    if (ctrlKey || metaKey || altKey || target.matches("select")) return;
    if (key === "c" || key === "C") toggle();
    if ((key === "m" || key === "M") && !$("mute").disabled) toggleMute();
    if (key === "Escape" && ["connecting", "connected", "reconnecting"].includes(now)) toggle();
  });
}
