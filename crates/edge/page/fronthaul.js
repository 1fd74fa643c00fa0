// fronthaul.js: a call to a Fronthaul edge from any page, without dependencies. Types stand in fronthaul.d.ts.
//
//   import { Call } from "https://edge.example/fronthaul.js";
//   const call = new Call({ model: "parrot" });
//   call.addEventListener("event", ({ detail }) => console.log(detail.type));
//   button.onclick = () => call.connect();
//
// A call outlives its connections. `Line` is one connection: a peer connection and the call that the edge answered to it.
// `Call` owns the microphone and the events, dials lines and replaces them: warm ones before the click, others when one broke.

const EDGE = new URL(import.meta.url).origin;
/** Without any answered check after this long, nothing at the advertised addresses hears this browser. */
const NO_CHECK_MS = 5000;
/** A path that answers checks must have its channel after this long. */
const OPEN_MS = 15_000;
const HTTP_MS = 10_000;
/** How long a direct path is given before TURN servers, which the answer named, are tried. */
const DIRECT_MS = 1500;
/** The path is looked at this often, and more closely while a question is open. */
const WATCH_MS = 100;
const WATCH_CLOSELY_MS = 50;
/** Without a look for this long the page slept, which says nothing of the network. */
const SLEPT_MS = 500;
/**
 * After `quiet` ms without a packet the edge is asked for one, and `silent` ms (or two round trips) after the question the path is
 * gone. An agent that speaks sends 50 packets a second; an edge without anything to say sends a report each second.
 */
const SPEAKING = { quiet: 150, silent: 250 };
const SILENCE = { quiet: 400, silent: 450 };
/** Soon after a repair a path must be silent for longer: a network that stutters is not cured by more of them. */
const REPAIRED = { quiet: 1000, silent: 2000, forMs: 10_000 };
/** A question is put again, as it may be lost; of two the transport acknowledges the second at once. */
const AGAIN_MS = [50, 150];
const RECONNECT_MS = 30_000;
const PLAYOUT_EVERY_MS = 1000;
/** A delay is told when it moved by this much, */
const PLAYOUT_STEP_MS = 10;
/** or after this long, and up to what the edge takes. */
const PLAYOUT_AGAIN_MS = 5000;
const PLAYOUT_MAX_MS = 2000;
/** The stream of the events' channel. Both sides know it, so the edge speaks first. */
const STREAM = 0;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Why something did not work (`reason`), and what to do about it (`fix`); `code` is for programs. */
export class FronthaulError extends Error {
  constructor(code, reason, fix, more = {}) {
    super(`${reason} ${fix}`, more.cause ? { cause: more.cause } : undefined);
    this.name = "FronthaulError";
    Object.assign(this, { code, reason, fix, status: more.status, retryAfterMs: more.retryAfterMs, candidates: more.candidates ?? [] });
  }
}

/** TURN servers that edges named last, by the edge's URL: the next call has them from the start. */
const named = new Map();
const credentialsOf = (servers) => servers.flatMap(({ urls, username, credential }) => [urls].flat().map((url) => JSON.stringify([url, username, credential])));

/** One connection to the edge. */
class Line {
  constructor(options, track, listeners) {
    this.options = options;
    this.listeners = listeners;
    const iceServers = (this.iceServers = [...(options.iceServers ?? []), ...(named.get(options.url) ?? [])]);
    const pc = (this.pc = new RTCPeerConnection({ iceServers, bundlePolicy: "max-bundle" }));
    // A transceiver instead of a track: the microphone may come later, with no word to the edge.
    this.sender = pc.addTransceiver(track ?? "audio", { direction: "sendrecv" }).sender;
    pc.ontrack = ({ track, streams }) => listeners.track(streams[0] ?? new MediaStream([track]));
    const channel = (this.channel = pc.createDataChannel("oai-events", { negotiated: true, id: STREAM }));
    channel.onmessage = ({ data }) => listeners.message(data);
    this.opened = new Promise((resolve) => (channel.onopen = resolve));
    this.heard = false;
    pc.oniceconnectionstatechange = () => {
      this.heard ||= ["connected", "completed"].includes(pc.iceConnectionState);
      listeners.path?.(pc.iceConnectionState);
    };
  }

  /** Makes the offer; it takes tens of milliseconds, so it is made before the click where it can be. */
  offer() {
    return (this.offered ??= this.pc.setLocalDescription());
  }

  /** Resolves once the channel is open. `last`: no other attempt with the servers that this one's answer names. */
  async dial(ticket, last) {
    const { pc } = this;
    await this.offer();
    if (this.closed) throw closedError();
    const offer = pc.localDescription.sdp;
    const written = ticket && writeAnswer(offer, ticket);
    const posted = this.#post(offer, written);
    const answer = written?.sdp ?? (await posted);
    this.candidates = candidatesOf(answer);
    if (written) {
      this.location = new URL(`/v1/realtime/calls/${ticket.session_id}`, this.options.url).href;
      // A refusal is about the ticket. No answer at all says nothing, as long as the checks get one.
      posted.catch((error) => (this.refused = error.status !== undefined));
    }
    if (this.closed) throw closedError();
    await this.#apply(answer);
    await this.#wait(last);
    this.instant = written !== undefined;
    this.channel.onclose = () => this.closed || this.listeners.ended();
    pc.onconnectionstatechange = () => pc.connectionState === "failed" && this.listeners.failed();
  }

  /** Posts the offer: for an answer, or to make sure of the call that the ticket's answer, sent with it, makes by itself. */
  async #post(offer, written) {
    const { options } = this;
    const more = written ? { "Fronthaul-Ticket": `${written.ufrag} ${written.pwd}` } : {};
    const response = await ask({ ...options, headers: { ...options.headers, ...more } }, callsUrl(options), offer, options.session);
    const answer = await response.text();
    this.location = new URL(response.headers.get("Location"), options.url).href;
    const servers = iceServersOf(response.headers.get("Link"));
    const had = credentialsOf(this.iceServers);
    this.relays = credentialsOf(servers).some((server) => !had.includes(server));
    named.set(options.url, servers);
    // Closed meanwhile, when nobody knew what to hang up: the edge would keep the seat until the call is given up.
    if (this.closed) this.#hangUp();
    return answer;
  }

  async #apply(answer) {
    try {
      await this.pc.setRemoteDescription({ type: "answer", sdp: answer });
    } catch (cause) {
      if (this.closed) throw closedError();
      throw new FronthaulError("bad_answer", `This browser does not take the edge's answer: ${cause.message}.`, "Update the browser or the edge.", { cause });
    }
  }

  async #wait(last) {
    const since = performance.now();
    const late = (ms) => performance.now() - since > ms;
    let open = false;
    this.opened.then(() => (open = true));
    for (;;) {
      await Promise.race([this.opened, sleep(50)]);
      if (open) return;
      if (this.closed) throw closedError();
      if (this.refused || (this.relays && !last && !this.heard && late(DIRECT_MS))) throw new Again();
      if (!this.heard && (late(NO_CHECK_MS) || this.pc.connectionState === "failed")) throw this.#unheard();
      if (this.heard && (late(OPEN_MS) || this.pc.connectionState === "failed")) {
        throw new FronthaulError(
          "no_channel",
          `${this.candidates.join(" or ")} answers, but no secure channel came up.`,
          "Something on the way lets small packets through and not others; try another network.",
          { candidates: this.candidates },
        );
      }
    }
  }

  #unheard() {
    const relays = this.pc.getConfiguration().iceServers.flatMap(({ urls }) => urls);
    return new FronthaulError(
      "no_path",
      `No check reached any advertised address (${this.candidates.join(", ") || "the answer names none"}${relays.length ? `, nor by ${relays.join(", ")}` : ""}) within ${NO_CHECK_MS / 1000} s.`,
      "This network may block UDP, or the edge advertises an address that you cannot reach: compare `public` in its config.",
      { candidates: this.candidates },
    );
  }

  /** ICE restart: the same call and keys over whatever path there is now. */
  async restart() {
    const { pc } = this;
    pc.restartIce();
    await pc.setLocalDescription();
    try {
      const response = await ask(this.options, this.location, pc.localDescription.sdp, undefined, 2000);
      await this.#apply(await response.text());
    } catch (error) {
      // The next attempt makes an offer of its own.
      if (pc.signalingState === "have-local-offer") await pc.setLocalDescription({ type: "rollback" }).catch(() => {});
      throw error;
    }
  }

  /** Bytes and responses received so far on each path, and the round trip of the one in use. */
  async traffic() {
    const traffic = { heard: new Map(), roundTripMs: undefined };
    for (const stat of (await this.pc.getStats()).values()) {
      if (stat.type !== "candidate-pair") continue;
      traffic.heard.set(stat.id, (stat.bytesReceived ?? 0) + (stat.responsesReceived ?? 0));
      if (stat.nominated && stat.currentRoundTripTime !== undefined) traffic.roundTripMs = stat.currentRoundTripTime * 1000;
    }
    return traffic;
  }

  close({ keepalive = false } = {}) {
    if (this.closed) return;
    this.closed = true;
    this.pc.close();
    if (this.location) this.#hangUp(keepalive);
  }

  #hangUp(keepalive = false) {
    fetch(this.location, { method: "DELETE", keepalive, headers: headersOf(this.options) }).catch(() => {});
  }
}

/** Whether anything came on any path since `before`. Paths come and go, with an ICE restart all of them in some browsers. */
const isNews = (heard, before) => [...heard].some(([path, amount]) => amount > 0 && amount !== before.get(path));

/** Thrown where another attempt has what this one had not: TURN servers that the answer named, or no ticket. */
class Again extends Error {}

export class Call extends EventTarget {
  #options;
  #line;
  #microphone;
  #own = false;
  #turn = Promise.resolve();
  #state = "idle";
  #warming;
  #attempt = {};
  #clicked;
  #remote;
  #ticket;
  #spare;
  #renewal;
  #muted = false;
  #timers = [];
  #playout = {};
  #watch;
  #repairing = false;
  #repairedAt = -Infinity;
  #onDevices = () => this.#devicesChanged();
  #network;
  #onOnline = () => this.#state === "connected" && this.#repair("The network changed.");
  #onNetwork = () => {
    const former = this.#network;
    this.#network = navigator.connection.type;
    // Most of these events tell a new estimate of round trip or bandwidth, on a path that is well.
    if (this.#network === former) this.#askForSign();
    else this.#onOnline();
  };

  constructor(options = {}) {
    super();
    const known = ["url", "model", "session", "token", "headers", "iceServers", "audio", "constraints", "reconnect"];
    for (const key of Object.keys(options)) {
      if (!known.includes(key)) throw new TypeError(`unknown option ${JSON.stringify(key)}; there are: ${known.join(", ")}`);
    }
    this.#options = { ...options, url: options.url ?? EDGE };
    /** Milliseconds from the click to the steps of the last connect. */
    this.timings = {};
    /** The element that plays the agent. */
    this.speaker = undefined;
  }

  get state() {
    return this.#state;
  }

  /** What the agent says, once a connection has it. */
  get stream() {
    return this.#remote;
  }

  get muted() {
    return this.#muted;
  }

  get microphone() {
    return this.#microphone;
  }

  /** The peer connection in use, for what this module has no word for. */
  get peerConnection() {
    return this.#line?.pc;
  }

  /**
   * Takes what can be taken out of the click. "connection": connects, without a microphone, which `connect` then only puts
   * in; it takes a seat at the edge. "ticket": has an answer ready before there is an offer, so that the click waits for no
   * request; it costs the edge nothing. Gives whether it did.
   */
  async prepare(what = "connection") {
    if (what === "ticket") return this.#fetchTicket();
    if (this.#state !== "idle") return Boolean(await this.#warming);
    this.#become("preparing");
    this.#attempt = {};
    this.#warming = this.#dial().then(
      (line) => {
        if (this.#state === "preparing") this.#become("ready");
        return line;
      },
      (error) => {
        if (this.#state === "preparing") this.#become("idle");
        throw error;
      },
    );
    return Boolean(await this.#warming);
  }

  /** Keeps a fresh ticket while the page is looked at. */
  async #fetchTicket() {
    clearTimeout(this.#renewal);
    const asked = performance.now();
    const url = new URL("/v1/realtime/tickets", this.#options.url);
    if (this.#options.model) url.searchParams.set("model", this.#options.model);
    const { session } = this.#options;
    const ticket = await ask(this.#options, url, session && JSON.stringify(session), undefined, HTTP_MS, "application/json")
      .then((response) => response.json())
      .catch(() => undefined);
    // No ticket is no fault: the click posts its offer.
    if (!ticket) return false;
    this.#ticket = { ...ticket, until: asked + ticket.expires_in_ms };
    named.set(this.#options.url, ticket.ice_servers ?? []);
    // Relays would be asked for an address that nobody may ever use.
    const relays = [...(this.#options.iceServers ?? []), ...(named.get(this.#options.url) ?? [])].length > 0;
    if (this.#state === "idle" && !relays) {
      this.#spare ??= this.#newLine();
      await this.#spare.offer();
    }
    const renew = () => {
      if (document.visibilityState === "visible") this.#fetchTicket();
      else document.addEventListener("visibilitychange", renew, { once: true });
    };
    this.#renewal = setTimeout(() => this.#ticket && renew(), 0.8 * ticket.expires_in_ms);
    return true;
  }

  /** It is good for one call. */
  #takeTicket() {
    const ticket = this.#ticket;
    this.#ticket = undefined;
    clearTimeout(this.#renewal);
    return ticket && performance.now() < ticket.until - 1000 ? ticket : undefined;
  }

  /** Resolves once the user can be heard and events flow. */
  async connect() {
    if (this.#state === "connected") return this;
    if (this.#state === "connecting") throw new FronthaulError("busy", "This call is connecting already.", "Wait for the first connect.");
    // Where there can be no microphone, the edge is not asked for a call.
    mediaDevices();
    const clicked = performance.now();
    this.timings = {};
    const took = (name) => (this.timings[name] = performance.now() - clicked);
    this.#clicked = clicked;
    const warm = this.#warming;
    this.timings.warm = this.#state === "ready";
    this.#become("connecting");
    const mine = (this.#attempt = {});
    const dial = (why) => {
      if (this.#attempt !== mine) throw why;
      return this.#dial();
    };
    try {
      // Both at once: the edge need not wait until somebody has found the button that allows the microphone.
      const microphone = this.#openMicrophone().then((track) => (took("microphone"), track));
      const line = (warm ? warm.catch(dial) : dial()).then((line) => (took("channel"), line));
      const [track, connected] = await settled(microphone, line, () => this.#attempt !== mine);
      await connected.sender.replaceTrack(track);
      took("connected");
      this.timings.instant = connected.instant && !this.timings.warm;
    } catch (error) {
      if (this.#attempt === mine) this.close();
      throw asError(error);
    } finally {
      this.#warming = undefined;
    }
    this.#begin();
    this.#become("connected");
    return this;
  }

  /** Sends a client event. */
  send(event) {
    const { channel } = this.#line ?? {};
    if (channel?.readyState !== "open") throw new FronthaulError("not_connected", "There is no open channel.", "Connect first, or wait for the state `connected`.");
    channel.send(JSON.stringify(event));
  }

  /** Silences the microphone, or not; gives what holds. */
  mute(muted = true) {
    this.#muted = muted;
    if (this.#microphone) this.#microphone.enabled = !muted;
    return muted;
  }

  /** Goes on with another microphone: a device id, a track, or nothing for the default. No word to the edge, nothing is lost. */
  async useMicrophone(device) {
    return this.#inTurn((mine) => this.#changeMicrophone(device, mine));
  }

  /** One change at a time, or two would open a microphone each and one would stay open, unknown. */
  #inTurn(change) {
    const mine = this.#attempt;
    const turn = this.#turn.then(() => change(mine));
    this.#turn = turn.catch(() => {});
    return turn;
  }

  /** For the attempt that asked for it, `mine`: what comes after its end goes off. */
  async #changeMicrophone(device, mine) {
    const { track, own } = await this.#getMicrophone(device);
    try {
      // A reconnect beside it makes another line with the former track.
      for (let line; line !== this.#line && this.#attempt === mine; ) {
        line = this.#line;
        await line.sender.replaceTrack(track).catch((error) => {
          if (line === this.#line) throw error;
        });
      }
      if (this.#attempt !== mine) throw closedError();
    } catch (error) {
      if (own && track !== this.#microphone) track.stop();
      throw error;
    }
    return this.#takeMicrophone(track, own);
  }

  /** Plays the agent on another device, where the browser can. */
  async useSpeaker(deviceId) {
    await this.speaker?.setSinkId?.(deviceId);
  }

  /** Microphones and speakers; labels are empty until a microphone was allowed. */
  async devices() {
    const all = await mediaDevices().enumerateDevices();
    return { microphones: all.filter(({ kind }) => kind === "audioinput"), speakers: all.filter(({ kind }) => kind === "audiooutput") };
  }

  /** Round trip, loss and delays of the connection, in ms and percent; what is not known is undefined. */
  async stats() {
    const found = {};
    for (const stat of ((await this.#line?.pc.getStats()) ?? new Map()).values()) {
      if (stat.type === "candidate-pair" && stat.nominated && stat.state === "succeeded" && stat.currentRoundTripTime !== undefined) {
        found.roundTripMs = stat.currentRoundTripTime * 1000;
      }
      if (stat.type === "inbound-rtp" && stat.kind === "audio" && stat.packetsReceived) {
        found.lossPercent = (100 * Math.max(0, stat.packetsLost)) / (Math.max(0, stat.packetsLost) + stat.packetsReceived);
        found.jitterMs = stat.jitter * 1000;
        found.buffer = { seconds: stat.jitterBufferDelay, samples: stat.jitterBufferEmittedCount };
      }
      if (stat.type === "media-playout") found.device = { seconds: stat.totalPlayoutDelay, samples: stat.totalSamplesCount };
    }
    const { buffer, device, ...rest } = found;
    const mean = (now, before) => (now && now.samples > (before?.samples ?? 0) ? (1000 * (now.seconds - (before?.seconds ?? 0))) / (now.samples - (before?.samples ?? 0)) : undefined);
    const jitterBufferMs = mean(buffer, this.#playout.buffer);
    const deviceMs = mean(device, this.#playout.device);
    this.#playout = { ...this.#playout, buffer, device };
    if (jitterBufferMs !== undefined) rest.playoutDelayMs = jitterBufferMs + (deviceMs ?? 0);
    return rest;
  }

  /** Repairs the connection at once, as after a change of network. */
  restart() {
    return this.#repair("The page asked for it.");
  }

  /** Hangs up. The same object may connect again. */
  close(options) {
    this.#attempt = {};
    this.#end(options);
    if (this.#state !== "idle") this.#become("idle");
  }

  #end(options) {
    this.#takeTicket();
    this.#spare?.close();
    this.#spare = undefined;
    this.#timers.forEach(clearInterval);
    this.#timers = [];
    globalThis.removeEventListener?.("online", this.#onOnline);
    navigator.connection?.removeEventListener?.("change", this.#onNetwork);
    navigator.mediaDevices?.removeEventListener("devicechange", this.#onDevices);
    this.#line?.close(options);
    this.#line = this.#warming = this.#clicked = this.#remote = undefined;
    if (this.#own) this.#microphone?.stop();
    this.#microphone = undefined;
    this.#turn = Promise.resolve();
    if (this.speaker && this.#options.audio === undefined) this.speaker.srcObject = null;
  }

  /** What begins with the user's voice: watching the path, the devices, and the delay of what is heard. */
  #begin() {
    this.#watchAnew();
    this.#playout = {};
    this.#timers = [setInterval(() => this.#look(), WATCH_CLOSELY_MS), setInterval(() => this.#reportPlayout(), PLAYOUT_EVERY_MS)];
    addEventListener("online", this.#onOnline);
    this.#network = navigator.connection?.type;
    navigator.connection?.addEventListener?.("change", this.#onNetwork);
    navigator.mediaDevices.addEventListener("devicechange", this.#onDevices);
    // Their names are told once the microphone was allowed.
    this.devices().then((devices) => this.#tell("devices", devices));
  }

  #newLine() {
    const line = new Line(this.#options, this.#microphone, {
      track: (stream) => this.#play(stream),
      message: (data) => this.#message(data),
      ended: () => this.#lost(line, new FronthaulError("ended", "The edge ended the call.", "Connect again.")),
      failed: () => line === this.#line && this.#failed(line),
      path: (state) => {
        if (line !== this.#line) return;
        if (state === "disconnected" && this.#state === "connected") this.#askForSign();
        this.#tell("path", state);
      },
    });
    return line;
  }

  async #dial() {
    // Credentials that are new in each answer are tried once, not for ever.
    for (let relayed = false; ; ) {
      const line = this.#spare ?? this.#newLine();
      this.#spare = undefined;
      const former = this.#line;
      this.#line = line;
      former?.close();
      try {
        await line.dial(this.#takeTicket(), relayed);
        return line;
      } catch (error) {
        line.close();
        if (this.#line === line) this.#line = undefined;
        if (!(error instanceof Again)) throw error;
        relayed ||= Boolean(line.relays);
      }
    }
  }

  #play(stream) {
    this.#remote = stream;
    if (this.#options.audio !== false) {
      this.speaker ??= this.#options.audio ?? new Audio();
      this.speaker.srcObject = stream;
      this.speaker.autoplay = true;
      this.speaker.play().catch((cause) => {
        if (cause.name === "NotAllowedError") this.#tell("error", new FronthaulError("playback_blocked", "The browser does not play sound yet.", "Connect from a click, or call speaker.play() in one.", { cause }));
      });
    }
    this.#tell("track", stream);
  }

  #message(data) {
    let event;
    try {
      event = JSON.parse(data);
    } catch {
      event = { type: "invalid", text: data };
    }
    if (this.#clicked !== undefined) this.timings.firstEvent ??= performance.now() - this.#clicked;
    this.#tell("event", event);
    // Names with a dot are the API's: `response.done`; the others are this module's.
    if (String(event.type).includes(".")) this.#tell(event.type, event);
    if (event.type === "error") {
      this.#tell("error", new FronthaulError(event.error?.code ?? "server", event.error?.message ?? "The server reports an error.", "", { cause: event }));
    }
  }

  /** A track, and whether it is this call's to stop. */
  async #getMicrophone(device) {
    if (device instanceof MediaStreamTrack) return { track: device, own: this.#own && device === this.#microphone };
    const constraints = typeof this.#options.constraints === "object" ? { ...this.#options.constraints } : {};
    if (device) constraints.deviceId = { exact: device };
    try {
      const stream = await mediaDevices().getUserMedia({ audio: Object.keys(constraints).length ? constraints : true });
      return { track: stream.getAudioTracks()[0], own: true };
    } catch (error) {
      throw microphoneError(error);
    }
  }

  /** The one of a connect; what comes for a call that was closed meanwhile goes off again. */
  async #openMicrophone() {
    const mine = this.#attempt;
    const { track, own } = await this.#getMicrophone();
    if (this.#attempt === mine) return this.#takeMicrophone(track, own);
    track.stop();
    throw closedError();
  }

  #takeMicrophone(track, own) {
    if (this.#own && this.#microphone !== track) this.#microphone?.stop();
    track.enabled = !this.#muted;
    // Unplugged in mid-call: the default device takes over.
    track.addEventListener("ended", () => track === this.#microphone && this.#state === "connected" && this.#devicesChanged());
    this.#own = own;
    this.#microphone = track;
    this.#tell("microphone", track);
    return track;
  }

  async #devicesChanged() {
    this.#tell("devices", await this.devices());
    await this.#inTurn((mine) => this.#own && this.#microphone?.readyState === "ended" && this.#changeMicrophone(undefined, mine)).catch((error) => error.code !== "closed" && this.#tell("error", asError(error)));
  }

  #watchAnew() {
    const now = performance.now();
    this.#watch = { heard: new Map(), heardAt: now, news: 0, looked: now, asked: undefined };
  }

  /** Asks the edge for a packet now, whatever came until now; `#look` repairs the path if none follows. */
  async #askForSign() {
    const [line, watch] = [this.#line, this.#watch];
    const traffic = await line?.traffic().catch(() => undefined);
    if (!traffic || this.#state !== "connected" || line !== this.#line || watch !== this.#watch || watch.asked !== undefined) return;
    const now = performance.now();
    Object.assign(watch, { heard: traffic.heard, heardAt: now, looked: now });
    this.#question(watch);
  }

  /** The transport acknowledges it, so something is heard as long as there is a path. */
  #question(watch) {
    const [line, asked] = [this.#line, performance.now()];
    watch.asked = asked;
    const put = () => line === this.#line && watch.asked === asked && this.#put({ type: "fronthaul.playout_delay" });
    put();
    for (const ms of AGAIN_MS) setTimeout(put, ms);
  }

  /** Looks whether anything is still heard, closely once it has become quiet. */
  async #look() {
    const [line, watch, began] = [this.#line, this.#watch, performance.now()];
    if (this.#state !== "connected" || !line || this.#repairing) return;
    if (watch.asked === undefined && began - watch.looked < WATCH_MS) return;
    const slept = began - watch.looked > SLEPT_MS;
    watch.looked = began;
    const { heard, roundTripMs } = await line.traffic().catch(() => ({ heard: watch.heard }));
    const now = performance.now();
    if (isNews(heard, watch.heard) || slept) return Object.assign(watch, { heard, heardAt: now, news: watch.asked === undefined ? watch.news + 1 : 0, asked: undefined });
    const flowing = watch.news >= 3;
    const { quiet, silent } = now - this.#repairedAt < REPAIRED.forMs ? REPAIRED : flowing ? SPEAKING : SILENCE;
    if (watch.asked !== undefined) {
      if (now - watch.asked > Math.max(silent, 2 * (roundTripMs ?? 0) + silent / 2)) await this.#repair("Nothing arrives from the edge.");
    } else if (now - watch.heardAt > quiet) this.#question(watch);
    else if (now - watch.heardAt > SPEAKING.quiet && !flowing) watch.news = 0;
  }

  /** ICE restarts until one brings the edge back, else a new call with the same microphone. */
  async #repair(why) {
    if (this.#repairing || !["connected", "reconnecting"].includes(this.#state) || !this.#line) return;
    if (this.#options.reconnect === false) return this.#lost(this.#line, new FronthaulError("lost", `The connection to the edge was lost: ${why}`, "Connect again."));
    this.#repairing = true;
    const mine = this.#attempt;
    const began = performance.now();
    this.#become("reconnecting");
    let kept = true;
    let fault;
    try {
      for (let pause = 100; performance.now() - began < RECONNECT_MS; pause = Math.min(2 * pause, 4000)) {
        try {
          if (kept) {
            const before = (await this.#line.traffic()).heard;
            await this.#line.restart();
            await this.#hears(before, mine);
          } else {
            await this.#dial();
          }
          if (this.#attempt !== mine) return;
          this.#watchAnew();
          this.#repairedAt = performance.now();
          this.#become("connected");
          this.#tell("reconnected", { kept, ms: performance.now() - began, why });
          return;
        } catch (error) {
          fault = error;
          if (this.#attempt !== mine) return;
          // The edge knows the call no more, or knows no restarts, or its path stays silent: a call of its own then.
          const refused = error.status >= 400 && error.status !== 429 && error.status !== 503;
          kept &&= !refused && performance.now() - began < RECONNECT_MS / 3 && this.#line.pc.connectionState !== "closed";
        }
        await Promise.race([sleep(Math.max(pause, Math.min(fault.retryAfterMs ?? 0, 4000))), new Promise((resolve) => addEventListener("online", resolve, { once: true }))]);
        if (this.#attempt !== mine) return;
      }
    } finally {
      this.#repairing = false;
    }
    this.#lost(this.#line, new FronthaulError("lost", `The connection to the edge was lost, and not found again in ${RECONNECT_MS / 1000} s: ${fault?.message ?? why}`, "Connect again.", { cause: fault }));
  }

  async #hears(before, mine) {
    for (let waited = 0; waited < 2000; waited += 50) {
      await sleep(50);
      if (this.#attempt !== mine) return;
      if (isNews((await this.#line.traffic()).heard, before)) return;
    }
    throw new FronthaulError("no_path", "The edge took the restart, but nothing arrives.", "");
  }

  #failed(line) {
    if (this.#state === "connected") this.#repair("The browser lost the connection.");
    else this.#lost(line, new FronthaulError("lost", "The connection to the edge was lost.", "Connect again."));
  }

  #lost(line, error) {
    if (line !== this.#line) return;
    // Before the click nobody misses it: the click dials anew.
    if (this.#state === "ready") return this.close();
    if (!["connected", "reconnecting"].includes(this.#state)) return;
    this.#attempt = {};
    this.#end();
    this.#tell("error", error);
    this.#become("idle");
  }

  /** Tells the transceiver how much later than received the user hears: it places interruptions by it. */
  async #reportPlayout() {
    if (this.#state !== "connected") return;
    const { playoutDelayMs, roundTripMs } = await this.stats().catch(() => ({}));
    // Nothing was played: the agent is silent.
    if (playoutDelayMs === undefined) return;
    this.#tell("playout", { delayMs: playoutDelayMs });
    const { told, toldAt } = this.#playout;
    const delayMs = Math.round(Math.min(playoutDelayMs, PLAYOUT_MAX_MS));
    const now = performance.now();
    if (told !== undefined && Math.abs(told - delayMs) < PLAYOUT_STEP_MS && now - toldAt < PLAYOUT_AGAIN_MS) return;
    const event = { type: "fronthaul.playout_delay", delay_ms: delayMs };
    if (roundTripMs !== undefined) event.round_trip_ms = Math.round(roundTripMs);
    if (this.#put(event)) Object.assign(this.#playout, { told: delayMs, toldAt: now });
  }

  /** Sends where there is somebody to send to; between two lines there is nobody. */
  #put(event) {
    try {
      this.send(event);
      return true;
    } catch {
      return false;
    }
  }

  #become(state) {
    this.#state = state;
    this.#tell("state", state);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

/** A call that is connected. */
export async function connect(options) {
  return new Call(options).connect();
}

/** Both results; what still comes when one has failed, or nobody wants them, is put away. */
async function settled(microphone, line, unwanted) {
  try {
    const both = await Promise.all([microphone, line]);
    if (unwanted()) throw closedError();
    return both;
  } catch (error) {
    microphone.then((track) => track.stop(), () => {});
    line.then((line) => line.close(), () => {});
    throw error;
  }
}

const closedError = () => new FronthaulError("closed", "The call was closed while it connected.", "Connect again.");

function callsUrl({ url, model }) {
  const calls = new URL("/v1/realtime/calls", url);
  if (model) calls.searchParams.set("model", model);
  calls.searchParams.set("dcid", STREAM);
  return calls.href;
}

const headersOf = ({ headers, token }) => ({ ...(token ? { Authorization: `Bearer ${token}` } : {}), ...headers });

/** Posts an offer, or what else; gives the response if it took it. */
async function ask(options, url, sdp, session, patience = HTTP_MS, type = "application/sdp") {
  const headers = headersOf(options);
  let body = sdp;
  if (session) {
    body = new FormData();
    body.set("sdp", sdp);
    body.set("session", JSON.stringify(session));
  } else if (sdp) {
    headers["Content-Type"] = type;
  }
  let response;
  try {
    response = await fetch(url, { method: "POST", headers, body, signal: AbortSignal.timeout(patience) });
  } catch (cause) {
    if (cause.name === "TimeoutError") throw new FronthaulError("edge_slow", `${options.url} did not answer within ${patience / 1000} s.`, "Check the network, then try again.", { cause });
    const mixed = globalThis.isSecureContext && location.protocol === "https:" && options.url.startsWith("http:");
    const fix = mixed ? "A page over HTTPS reaches only an edge over HTTPS." : "Is the edge running, and is its address right?";
    throw new FronthaulError("edge_unreachable", `${options.url} does not answer HTTP.`, fix, { cause });
  }
  if (response.ok) return response;
  const text = await response.text().catch(() => "");
  let said = text.trim() || response.statusText;
  try {
    said = JSON.parse(text).error.message;
  } catch {
    // Not the API's error body: it is shown as it came.
  }
  const wait = Number(response.headers.get("Retry-After")) || undefined;
  throw new FronthaulError("refused", `The edge refused the call (${response.status}): ${said}`, fixOf(response.status, wait), {
    status: response.status,
    retryAfterMs: wait && wait * 1000,
  });
}

function fixOf(status, wait) {
  const later = `Try again${wait ? ` in ${wait} s` : " later"}.`;
  if (status === 401 || status === 403) return "Check the token.";
  if (status === 404 || status === 410) return "Check the address; a call that is over needs a new one.";
  if (status === 429) return `Too many calls from here at once. ${later}`;
  if (status >= 500) return later;
  return "The page sent something that the edge does not take: compare the versions of fronthaul.js and the edge.";
}

/**
 * The answer to an offer, made from a ticket before the edge has seen it: docs/WEBRTC.md has the rules. Behind the ticket in
 * its ufrag stands what the edge has to know of the offer, and the first check brings it there. Nothing for an offer that
 * does not fit; it has to be posted.
 */
export function writeAnswer(offer, ticket, stream = STREAM) {
  const [session, ...media] = offer.trim().split(/\r?\n(?=m=)/).map((section) => section.split(/\r?\n/));
  const values = (section, name) => section.filter((line) => line.startsWith(`a=${name}:`)).map((line) => line.slice(name.length + 3).trim());
  const value = (section, name) => values(section, name)[0] ?? values(session, name)[0];
  const kinds = media.map(([line]) => line.slice(2).split(" ")[0]);
  const only = (kind) => media[kinds.indexOf(kind)];
  const [audio, data] = [only("audio"), only("application")];
  const bundled = (values(session, "group").find((group) => group.startsWith("BUNDLE")) ?? "").split(" ").slice(1);
  const mids = media.map((section) => value(section, "mid"));
  const fingerprint = /^sha-256 ((?:[0-9A-F]{2}:){31}[0-9A-F]{2})$/i.exec(value(media[0] ?? [], "fingerprint") ?? "")?.[1];
  const size = data && Number(value(data, "max-message-size") ?? 65536);
  const fingerprints = new Set([session, ...media].flatMap((section) => values(section, "fingerprint")));
  const fits =
    fingerprint &&
    fingerprints.size === 1 &&
    value(media[0], "setup") === "actpass" &&
    !(data && values(data, "dcmap").length) &&
    new Set(kinds).size === kinds.length &&
    kinds.every((kind) => kind === "audio" || kind === "application") &&
    mids.every((mid) => mid !== undefined && bundled.includes(mid)) &&
    (!data || (value(data, "sctp-port") === "5000" && (size === 0 || size >= 262144)));
  const payloads = audio?.[0].split(" ").slice(3) ?? [];
  const opus = payloads.find((payload) => values(audio, "rtpmap").some((map) => map.toLowerCase().startsWith(`${payload} opus/48000`)));
  if (!fits || (audio && opus === undefined)) return undefined;
  // What there is no room to tell by number is answered under the numbers that browsers give it, or not at all.
  const offers = (payload, map) =>
    payloads.includes(`${payload}`) && values(audio, "rtpmap").some((line) => `${line.toLowerCase()}/`.startsWith(`${payload} ${map}/`));
  const copies = values(audio ?? [], "fmtp").find((line) => line.startsWith(`${RED} `))?.slice(3).trim().split("/") ?? [];
  const red = ["offered", "prefer"].includes(ticket.red) && offers(RED, "red/48000") && copies.length > 0 && copies.every((block) => block === opus);
  const keys = KEYS.find(([payload, map]) => offers(payload, map));

  const extension = (uri) => parseInt(values(audio ?? [], "extmap").find((map) => map.split(" ")[1] === uri) ?? "0", 10);
  const level = extension(LEVEL);
  const direction = ["sendrecv", "sendonly", "recvonly", "inactive"].find((way) => audio?.includes(`a=${way}`)) ?? "sendrecv";
  const [sends, receives] = [["sendrecv", "sendonly"].includes(direction), ["sendrecv", "recvonly"].includes(direction)];
  // Feedback about each packet that comes; the mid, of no use with one audio line, gives way to it.
  const feedback = opus !== undefined && values(audio, "rtcp-fb").includes(`${opus} transport-cc`);
  const wide = feedback && receives ? extension(WIDE) : 0;
  const wideId = wide <= 14 ? wide : 0;
  const midId = wideId ? 0 : extension(MID);
  // Two halves of one byte.
  if (level > 14 || midId > 14) return undefined;
  const offered = (value(media[0], "ice-options") ?? "").split(" ");
  const sped = ticket.ice_options.split(" ").filter((name) => offered.includes(name));
  const init = data && value(data, "sctp-init");
  const chunk = init && Uint8Array.from(atob(init), (char) => char.charCodeAt(0));
  const flags = (sped.length && 1) | (init && 2) | (audio && 4) | (audio && sends && 8) | (audio && receives && 16) | (data && 32) | (data && 64) | (wideId && 128);
  const facts = [
    ...fingerprint.split(":").map((byte) => parseInt(byte, 16)),
    ...[flags, Number(opus ?? 0) | (red && 128), (level << 4) | (wideId || midId), stream >> 8, stream & 255],
    ...(init ? [...chunk.slice(4, 8), ...chunk.slice(16, 20)] : []),
  ];
  const ufrag = ticket.ufrag + unpadded(facts);

  const transport = (mid) => [
    "c=IN IP4 0.0.0.0",
    `a=mid:${mid}`,
    `a=ice-ufrag:${ufrag}`,
    `a=ice-pwd:${ticket.pwd}`,
    `a=fingerprint:${ticket.fingerprint}`,
    `a=setup:${sped.length ? ticket.setup : "active"}`,
    ...(sped.length ? [`a=ice-options:${sped.join(" ")}`] : []),
  ];
  // The first is what a browser sends.
  const formats = [...(red && ticket.red === "prefer" ? [RED, opus] : red ? [opus, RED] : [opus]), ...(keys ? [keys[0]] : [])];
  const mirrored = { sendrecv: "sendrecv", sendonly: "recvonly", recvonly: "sendonly", inactive: "inactive" }[direction];
  const section = {
    audio: (mid) => [
      `m=audio 9 UDP/TLS/RTP/SAVPF ${formats.join(" ")}`,
      ...transport(mid),
      "a=rtcp-mux",
      `a=${mirrored}`,
      `a=rtpmap:${opus} opus/48000/2`,
      `a=fmtp:${opus} ${ticket.opus_parameters ?? "minptime=10;useinbandfec=1"}`,
      ...(red ? [`a=rtpmap:${RED} red/48000/2`, `a=fmtp:${RED} ${opus}/${opus}`] : []),
      ...(keys ? [`a=rtpmap:${keys.join(" ")}`] : []),
      ...(level ? [`a=extmap:${level} ${LEVEL}`] : []),
      ...(midId ? [`a=extmap:${midId} ${MID}`] : []),
      ...(wideId ? [`a=rtcp-fb:${opus} transport-cc`, `a=extmap:${wideId}/sendonly ${WIDE}`] : []),
      `a=msid:stream-${ticket.cname} audio-${ticket.cname}`,
      `a=ssrc:${ticket.ssrc} cname:${ticket.cname}`,
    ],
    application: (mid) => [
      "m=application 9 UDP/DTLS/SCTP webrtc-datachannel",
      ...transport(mid),
      `a=sctp-port:${ticket.sctp_port}`,
      `a=max-message-size:${ticket.max_message_size}`,
      ...(init ? [`a=sctp-init:${ticket.sctp_init}`] : []),
    ],
  };
  const candidates = [...ticket.candidates.map((candidate) => `a=${candidate}`), "a=end-of-candidates"];
  const lines = [
    "v=0",
    `o=- ${ticket.sdp_session} 1 IN IP4 0.0.0.0`,
    "s=-",
    "t=0 0",
    `a=group:BUNDLE ${mids.join(" ")}`,
    ...(session.includes("a=extmap-allow-mixed") ? ["a=extmap-allow-mixed"] : []),
    "a=msid-semantic:WMS *",
    "a=ice-lite",
    ...kinds.flatMap((kind, n) => [...section[kind](mids[n]), ...(n === 0 ? candidates : [])]),
  ];
  return { sdp: `${lines.join("\r\n")}\r\n`, ufrag, pwd: ticket.pwd };
}

const RED = 63;
const KEYS = [
  [110, "telephone-event/48000"],
  [101, "telephone-event/8000"],
  [126, "telephone-event/8000"],
];
const LEVEL = "urn:ietf:params:rtp-hdrext:ssrc-audio-level";
const WIDE = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
const MID = "urn:ietf:params:rtp-hdrext:sdes:mid";
const unpadded = (bytes) => btoa(String.fromCharCode(...bytes)).replace(/=+$/, "");

/** `UDP 192.0.2.7:3478` of each candidate. */
const candidatesOf = (sdp) =>
  [...sdp.matchAll(/^a=candidate:\S+ \d+ (\S+) \d+ (\S+) (\d+)/gm)].map(
    ([, transport, address, port]) => `${transport.toUpperCase()} ${address.includes(":") ? `[${address}]` : address}:${port}`,
  );

/** RFC 9725 §4.6: `<turns:turn.example:5349?transport=tcp>; rel="ice-server"; username="u"; credential="c"`. */
export function iceServersOf(link) {
  return [...(link ?? "").matchAll(/<([^>]*)>((?:\s*;\s*[\w-]+\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s;,"]+))*)/g)].flatMap(([, url, rest]) => {
    const params = Object.fromEntries(
      [...rest.matchAll(/([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]+))/g)].map(([, name, quoted, bare]) => [name.toLowerCase(), quoted?.replace(/\\(.)/g, "$1") ?? bare]),
    );
    if (params.rel !== "ice-server") return [];
    const { username, credential } = params;
    return [{ urls: url, ...(username === undefined ? {} : { username, credential }) }];
  });
}

function mediaDevices() {
  if (navigator.mediaDevices) return navigator.mediaDevices;
  throw new FronthaulError(
    "insecure_context",
    "Browsers give pages a microphone only over HTTPS or on localhost.",
    "Open this page by one of these.",
  );
}

function microphoneError(error) {
  if (error instanceof FronthaulError) return error;
  const known = {
    NotAllowedError: ["microphone_denied", "The microphone was refused.", "Allow it for this page in the address bar, then connect again."],
    NotFoundError: ["microphone_missing", "No microphone was found.", "Plug one in, then connect again."],
    OverconstrainedError: ["microphone_missing", "The chosen microphone is not there.", "Choose another one."],
    NotReadableError: ["microphone_busy", "The microphone is in use by another program.", "Close that, then connect again."],
  };
  const [code, reason, fix] = known[error.name] ?? ["microphone_failed", `The microphone could not be opened: ${error.message}.`, "Try another one."];
  return new FronthaulError(code, reason, fix, { cause: error });
}

const asError = (error) =>
  error instanceof FronthaulError ? error : new FronthaulError("unexpected", `Something unexpected happened: ${error.message}.`, "Reload the page; tell us if it stays.", { cause: error });
