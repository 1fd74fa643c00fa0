// A plain WebRTC client of the Realtime API that records both sides with one clock. Driven by the tests through `window.call`.

const RATE = 48000;
const AS_IT_IS = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };

class Call {
  events = [];
  recorded = [[], []];
  marks = {};

  /** The ICE servers that an edge names, as a WHIP client reads them: from the `Link` headers of a call (RFC 9725 §4.6). */
  async iceServers(url) {
    const pc = new RTCPeerConnection();
    pc.createDataChannel("oai-events");
    await pc.setLocalDescription(await pc.createOffer());
    const response = await fetch(`${url}/v1/realtime/calls`, {
      method: "POST",
      headers: { "Content-Type": "application/sdp" },
      body: pc.localDescription.sdp,
    });
    pc.close();
    await fetch(url + response.headers.get("Location"), { method: "DELETE" });
    const value = (link, name) => link.match(new RegExp(`${name}="([^"]*)"`))?.[1];
    return response.headers
      .get("Link")
      .split(/,\s*(?=<)/)
      .map((link) => ({
        urls: link.match(/^<([^>]*)>/)[1],
        username: value(link, "username"),
        credential: value(link, "credential"),
      }));
  }

  /** Begins to record; gives how to record the microphone and what is heard. */
  async #record() {
    this.context = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
    await this.context.audioWorklet.addModule("recorder.js");
    this.recorder = new AudioWorkletNode(this.context, "recorder", { numberOfInputs: 2, numberOfOutputs: 0 });
    this.recorder.port.onmessage = ({ data }) => data.forEach((samples, i) => this.recorded[i].push(samples));
    const from = (stream, input) => this.context.createMediaStreamSource(stream).connect(this.recorder, 0, input);
    return {
      said: (stream) => from((this.microphone = stream), 0),
      heard: (stream) => {
        // Chromium feeds WebAudio from a remote track only while a media element plays it.
        this.element = new Audio();
        this.element.srcObject = stream;
        this.element.muted = true;
        this.element.play();
        from(stream, 1);
      },
    };
  }

  /** The same with fronthaul.js of the edge at `url`; gives its timings. `ours` is its call. */
  async connectModule(options) {
    const { said, heard } = await this.#record();
    const { Call } = await import(`${options.url}/fronthaul.js`);
    const call = (this.ours = new Call({ audio: false, constraints: AS_IT_IS, ...options }));
    Object.defineProperty(this, "pc", { get: () => call.peerConnection });
    call.addEventListener("microphone", ({ detail }) => said(new MediaStream([detail])));
    call.addEventListener("track", ({ detail }) => heard(detail));
    call.addEventListener("event", ({ detail }) => this.events.push({ at: performance.now(), data: JSON.stringify(detail) }));
    await call.connect();
    this.channel = { send: (text) => call.send(JSON.parse(text)) };
    return call.timings;
  }

  /** Connects. `port`, and `address`, replace those of the answer's candidates, so that a proxy can stand in between. */
  async connect({ url, model, key, port, address, iceServers = [] }) {
    const { said, heard } = await this.#record();
    said(await navigator.mediaDevices.getUserMedia({ audio: AS_IT_IS }));

    const pc = (this.pc = new RTCPeerConnection({ iceServers }));
    pc.ontrack = ({ streams: [stream], track }) => heard(stream ?? new MediaStream([track]));
    this.microphone.getTracks().forEach((track) => pc.addTrack(track));
    const channel = (this.channel = pc.createDataChannel("oai-events"));
    const opened = new Promise((resolve) => (channel.onopen = resolve));
    channel.onmessage = ({ data }) => this.events.push({ at: performance.now(), data });
    pc.onconnectionstatechange = () => (this.marks[pc.connectionState] ??= performance.now());

    const started = performance.now();
    await pc.setLocalDescription(await pc.createOffer());
    const response = await fetch(`${url}/v1/realtime/calls${model ? `?model=${model}` : ""}`, {
      method: "POST",
      headers: { "Content-Type": "application/sdp", ...(key && { Authorization: `Bearer ${key}` }) },
      body: pc.localDescription.sdp,
    });
    const answer = await response.text();
    if (response.status !== 201) throw new Error(`${response.status}: ${answer}`);
    this.location = response.headers.get("Location");
    const behind = (_, head, ip) => `${head} ${address ?? ip} ${port}`;
    this.via = (text) => (port ? text.replace(/^(a=candidate:\S+ \d+ \S+ \d+) (\S+) \d+/gm, behind) : text);
    const sdp = this.via(answer);
    await pc.setRemoteDescription({ type: "answer", sdp });
    await opened;
    return { location: this.location, opened: performance.now() - started, answer };
  }

  /** Restarts ICE by a later offer at the call's Location, which is given up after `ms`; gives the answer. */
  async restart(url, ms = 5000) {
    await this.pc.setLocalDescription(await this.pc.createOffer({ iceRestart: true }));
    const response = await fetch(new URL(this.location, url), {
      method: "POST",
      headers: { "Content-Type": "application/sdp" },
      body: this.pc.localDescription.sdp,
      signal: AbortSignal.timeout(ms),
    });
    const answer = await response.text();
    if (response.status !== 200) throw new Error(`${response.status}: ${answer}`);
    await this.pc.setRemoteDescription({ type: "answer", sdp: this.via(answer) });
    return answer;
  }

  /** Notes each 10 ms how many audio packets have come; `received()` gives `[[at, packets], ...]`. */
  watch() {
    this.counts = [];
    const look = async () => {
      const inbound = (await this.stats()).find(({ type, kind }) => type === "inbound-rtp" && kind === "audio");
      this.counts.push([performance.timeOrigin + performance.now(), inbound?.packetsReceived ?? 0]);
      this.watching = setTimeout(look, 10);
    };
    look();
  }

  /** Seconds of audio recorded so far. */
  seconds() {
    return (this.recorded[0].length * 2400) / RATE;
  }

  send(event) {
    this.channel.send(typeof event === "string" ? event : JSON.stringify(event));
  }

  async stats() {
    return [...(await this.pc.getStats()).values()];
  }

  /** Both channels as base64 of little-endian i16. */
  recording() {
    return this.recorded.map((blocks) => {
      const pcm = new Int16Array(blocks.length * 2400);
      blocks.forEach((block, n) =>
        block.forEach((sample, i) => (pcm[n * 2400 + i] = Math.max(-1, Math.min(1, sample)) * 32767)),
      );
      const bytes = new Uint8Array(pcm.buffer);
      let text = "";
      for (let at = 0; at < bytes.length; at += 0x8000) {
        text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
      }
      return btoa(text);
    });
  }

  hangUp() {
    clearTimeout(this.watching);
    if (this.ours) return this.ours.close();
    this.pc.close();
    this.microphone.getTracks().forEach((track) => track.stop());
  }
}

window.call = new Call();
