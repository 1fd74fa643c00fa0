// An app on the agents SDK as its documentation has it; the tests drive it through `window.app`.
import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession, tool } from "@openai/agents-realtime";
import { z } from "zod";

const seen = [];
const note = (type, detail) => seen.push({ at: performance.now(), type, detail });

const weather = tool({
  name: "get_weather",
  description: "The weather of a city.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => {
    note("tool", city);
    return `It is sunny in ${city}.`;
  },
});

/** A recording as a microphone, for a browser without a device to play to; `window.app.say()` starts it. */
async function recording(address) {
  const element = new Audio(address);
  await new Promise((resolve) => element.addEventListener("canplaythrough", resolve, { once: true }));
  window.app.say = () => void element.play();
  return (element.captureStream ?? element.mozCaptureStream).call(element);
}

window.app = {
  seen,

  /** `speech`: what is said instead of the microphone's, by the address of a recording. */
  async connect({ url, key, model, speech }) {
    const element = new Audio();
    element.autoplay = true;
    const mediaStream = speech ? await recording(speech) : undefined;
    const transport = new OpenAIRealtimeWebRTC({ baseUrl: `${url}/v1/realtime/calls`, audioElement: element, mediaStream });
    const agent = new RealtimeAgent({ name: "Tester", instructions: "Be brief.", tools: [weather] });
    const session = new RealtimeSession(agent, { transport, model });
    Object.assign(this, { element, transport, session });
    transport.on("*", (event) => note(event.type, event));
    for (const name of ["audio_start", "audio_stopped", "audio_interrupted", "agent_tool_start", "agent_tool_end"]) {
      session.on(name, () => note(`session.${name}`));
    }
    session.on("error", ({ error }) => note("session.error", JSON.parse(JSON.stringify(error, Object.getOwnPropertyNames(error ?? {})))));
    const began = performance.now();
    await session.connect({ apiKey: key });
    this.pc = transport.connectionState.peerConnection;
    return { ms: performance.now() - began, callId: transport.callId };
  },

  /** Loudness of what is played, each 20 ms, from now on. */
  listen() {
    const context = new AudioContext();
    const analyser = new AnalyserNode(context, { fftSize: 1024 });
    context.createMediaStreamSource(this.element.srcObject).connect(analyser);
    const samples = new Float32Array(1024);
    this.loud = [];
    this.listening = setInterval(() => {
      analyser.getFloatTimeDomainData(samples);
      this.loud.push({ at: performance.now(), rms: Math.hypot(...samples) / 32 });
    }, 20);
  },

  text: (text) => window.app.session.sendMessage(text),
  interrupt: () => window.app.session.interrupt(),
  history: () => window.app.session.history,
  state: () => window.app.pc.connectionState,
  close: () => window.app.session.close(),
};
