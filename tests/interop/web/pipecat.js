// An app on pipecat's client, whose SmallWebRTC transport takes its microphone by itself; the tests drive it through `window.app`.
import { PipecatClient } from "@pipecat-ai/client-js";
import { SmallWebRTCTransport, WavMediaManager } from "@pipecat-ai/small-webrtc-transport";

const seen = [];
const note = (type, detail) => seen.push({ at: performance.now(), type, detail });

window.app = {
  seen,

  connect({ url, key, model }) {
    // The transport's own media manager asks a server on the internet for its code.
    const transport = new SmallWebRTCTransport({ mediaManager: new WavMediaManager() });
    const callbacks = {
      onConnected: () => note("connected"),
      onBotConnected: ({ id }) => note("bot", id),
      onDisconnected: () => note("disconnected"),
      onTransportStateChanged: (state) => note("state", state),
      onTrackStarted: (track) => this.listen(track),
      onError: (error) => note("error", JSON.stringify(error)),
    };
    this.client = new PipecatClient({ transport, enableMic: true, enableCam: false, callbacks });
    const webrtcRequestParams = { endpoint: `${url}/api/offer?model=${model}`, headers: new Headers({ Authorization: `Bearer ${key}` }) };
    // Without an RTVI bot at the other end nobody says `bot-ready`, for which this promise waits.
    this.client.connect({ webrtcRequestParams }).catch((error) => note("error", String(error)));
  },

  /** Loudness of what the agent says, each 20 ms, from its track on. */
  listen(track) {
    note("track", track.kind);
    if (track.kind !== "audio" || this.loud) return;
    const stream = new MediaStream([track]);
    const element = (this.element = new Audio());
    element.autoplay = true;
    element.srcObject = stream;
    const context = new AudioContext();
    const analyser = new AnalyserNode(context, { fftSize: 1024 });
    context.createMediaStreamSource(stream).connect(analyser);
    const samples = new Float32Array(1024);
    this.loud = [];
    setInterval(() => {
      analyser.getFloatTimeDomainData(samples);
      this.loud.push({ at: performance.now(), rms: Math.hypot(...samples) / 32 });
    }, 20);
  },

  close: () => window.app.client.disconnect(),
};
