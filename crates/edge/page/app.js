// The demo page: one call, what it sounds like, and how it does.

const $ = (id) => document.getElementById(id);
const LOUD = 0.02; // RMS from which a side counts as sounding
const QUIET_MS = 250; // and how long below it until it counts as silent
const CONNECT_MS = 8000;
const MOST_EVENTS = 200;

class Problem extends Error {}

/** One connection to the edge, from the click to the hang-up. */
class Call {
  constructor(model, listeners) {
    this.model = model;
    this.listeners = listeners;
    this.started = performance.now();
  }

  async connect() {
    this.microphone = await openMicrophone();
    const pc = (this.pc = new RTCPeerConnection());
    pc.ontrack = ({ track, streams }) => this.listeners.track(streams[0] ?? new MediaStream([track]));
    for (const track of this.microphone.getTracks()) pc.addTrack(track, this.microphone);
    const channel = (this.channel = pc.createDataChannel("oai-events"));
    channel.onmessage = ({ data }) => this.listeners.event(data);
    channel.onclose = () => this.listeners.ended("The edge ended the call.");
    pc.onconnectionstatechange = () => {
      if (pc.connectionState === "failed") this.listeners.ended("The connection to the edge was lost.");
    };

    await pc.setLocalDescription(await pc.createOffer());
    const answer = await this.#signal(pc.localDescription.sdp);
    await pc.setRemoteDescription({ type: "answer", sdp: answer });
    await this.#opened(channel, answer);
    return performance.now() - this.started;
  }

  async #signal(offer) {
    const query = this.model ? `?model=${encodeURIComponent(this.model)}` : "";
    let response;
    try {
      response = await fetch(`/v1/realtime/calls${query}`, {
        method: "POST",
        headers: { "Content-Type": "application/sdp" },
        body: offer,
      });
    } catch {
      throw new Problem("The edge does not answer HTTP. Is it still running?");
    }
    const text = await response.text();
    if (response.status !== 201) {
      let said = text;
      try {
        said = JSON.parse(text).error.message;
      } catch {
        // Not the API's error body: show it as it came.
      }
      throw new Problem(`The edge refused the call (${response.status}): ${said}`);
    }
    this.location = response.headers.get("Location");
    return text;
  }

  #opened(channel, answer) {
    const addresses = [...answer.matchAll(/^a=candidate:\S+ \d+ (\S+) \d+ (\S+) (\d+)/gm)].map(
      ([, transport, address, port]) => `${transport.toUpperCase()} ${address}:${port}`,
    );
    return new Promise((resolve, reject) => {
      const timer = setTimeout(
        () =>
          reject(
            new Problem(
              `No answer from ${addresses.join(" or ") || "the edge"} within ${CONNECT_MS / 1000} s.\n` +
                "This network may block UDP, or the edge advertises an address that you cannot reach " +
                "(start it with --advertise and an address of its own).",
            ),
          ),
        CONNECT_MS,
      );
      channel.onopen = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  mute(muted) {
    for (const track of this.microphone.getAudioTracks()) track.enabled = !muted;
  }

  hangUp() {
    if (this.channel) this.channel.onclose = null;
    this.pc?.close();
    this.microphone?.getTracks().forEach((track) => track.stop());
    if (this.location) fetch(this.location, { method: "DELETE", keepalive: true }).catch(() => {});
  }
}

async function openMicrophone() {
  if (!navigator.mediaDevices) {
    throw new Problem("Browsers give pages a microphone only over HTTPS or on localhost. Open this page by one of these.");
  }
  try {
    return await navigator.mediaDevices.getUserMedia({ audio: true });
  } catch (error) {
    const why = {
      NotAllowedError: "The microphone was refused. Allow it for this page in the address bar, then connect again.",
      NotFoundError: "No microphone was found. Plug one in, then connect again.",
      NotReadableError: "The microphone is in use by another program. Close that, then connect again.",
    };
    throw new Problem(why[error.name] ?? `The microphone could not be opened: ${error.message}`);
  }
}

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
let call;
let sides;
let muted = false;

const state = (value) => (document.body.dataset.state = value);

function say(who, hint) {
  if ($("who").textContent !== who) $("who").textContent = who;
  if (hint !== undefined) $("hint").textContent = hint;
}

function problem(text) {
  $("problem").hidden = !text;
  $("problem").textContent = text ?? "";
}

async function connect() {
  problem();
  clearEvents();
  state("connecting");
  say("Connecting …", "Your browser may ask for the microphone.");
  $("call").firstElementChild.textContent = "Cancel";
  const context = new AudioContext();
  const mine = (call = new Call($("model").value, {
    track: (stream) => {
      $("speaker").srcObject = stream;
      sides.agent = new Side(context, stream);
    },
    event: showEvent,
    ended: (why) => call === mine && hangUp(why),
  }));
  mine.context = context;
  sides = {};
  try {
    const setup = await mine.connect();
    if (call !== mine) return;
    sides.you = new Side(context, mine.microphone);
    $("setup").textContent = milliseconds(setup);
    $("call").firstElementChild.textContent = "Hang up";
    $("mute").disabled = false;
    say("Listening", "Say something, then wait a moment.");
    state("listening");
    mine.poll = setInterval(() => figures(mine), 1000);
  } catch (error) {
    if (call !== mine) return mine.hangUp();
    hangUp(error instanceof Problem ? error.message : `Something unexpected happened: ${error.message}`);
  }
}

function hangUp(why) {
  clearInterval(call.poll);
  call.hangUp();
  call.context.close();
  call = sides = undefined;
  muted = false;
  $("speaker").srcObject = null;
  $("call").firstElementChild.textContent = "Connect";
  $("mute").disabled = true;
  showMute();
  $("mic-level").value = $("out-level").value = 0;
  state("idle");
  say("Not connected", "Connect, then talk. The parrot says back what it heard; talk over it and it stops.");
  problem(why);
}

function toggleMute() {
  muted = !muted;
  call.mute(muted);
  showMute();
}

function showMute() {
  $("mute").setAttribute("aria-pressed", String(muted));
  $("mute").firstElementChild.textContent = muted ? "Unmute" : "Mute";
}

function frame(now) {
  requestAnimationFrame(frame);
  if (!sides?.you) return;
  const { you, agent } = sides;
  you.measure(now);
  const replied = agent?.measure(now);
  if (replied && now - you.lastLoud < 10_000) $("reply").textContent = milliseconds(now - you.lastLoud);
  $("mic-level").value = shown(you.level);
  $("out-level").value = shown(agent?.level ?? 0);
  strip.add(now, you.level, agent?.level ?? 0);
  strip.draw(now);
  if (you.sounding && agent?.sounding) state("you"), say("Both are speaking");
  else if (you.sounding) state("you"), say("You are speaking");
  else if (agent?.sounding) state("agent"), say("The agent is speaking");
  else state("listening"), say(muted ? "Muted" : "Listening");
}

async function figures({ pc }) {
  const stats = [...(await pc.getStats()).values()];
  const pair = stats.find(({ type, nominated, state }) => type === "candidate-pair" && nominated && state === "succeeded");
  if (pair?.currentRoundTripTime !== undefined) $("rtt").textContent = milliseconds(pair.currentRoundTripTime * 1000);
  const media = stats.find(({ type, kind }) => type === "inbound-rtp" && kind === "audio");
  if (media?.packetsReceived) {
    const lost = Math.max(0, media.packetsLost);
    $("loss").textContent = `${((100 * lost) / (lost + media.packetsReceived)).toFixed(1)} %`;
  }
}

const milliseconds = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;

function clearEvents() {
  $("events").replaceChildren();
  $("count").textContent = "";
  clearEvents.total = 0;
}

function showEvent(text) {
  let event;
  try {
    event = JSON.parse(text);
  } catch {
    event = { type: "(not JSON)", text };
  }
  const item = document.createElement("li");
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  const time = document.createElement("time");
  time.textContent = ((performance.now() - call.started) / 1000).toFixed(1);
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
  if (event.type === "error") problem(event.error?.message);
}

function kindOf(type) {
  if (type === "error") return "error";
  if (type.startsWith("input_audio_buffer")) return "you";
  if (type.startsWith("response") || type.startsWith("output_audio_buffer")) return "agent";
  return "";
}

const toggleCall = () => (call ? hangUp() : connect());
$("call").onclick = toggleCall;
$("mute").onclick = toggleMute;
addEventListener("keydown", ({ key, target, ctrlKey, metaKey, altKey }) => {
  if (ctrlKey || metaKey || altKey || target.matches("select")) return;
  if (key === "c" || key === "C") toggleCall();
  if ((key === "m" || key === "M") && !$("mute").disabled) toggleMute();
  if (key === "Escape" && call) hangUp();
});
addEventListener("pagehide", () => call && hangUp());
requestAnimationFrame(frame);
