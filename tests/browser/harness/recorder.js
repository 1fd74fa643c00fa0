// Posts what it hears: two channels (microphone, reply) of the same clock, in blocks of 2400 samples.
class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = [new Float32Array(2400), new Float32Array(2400)];
    this.filled = 0;
  }

  process(inputs) {
    for (let i = 0; i < 128; i++) {
      for (const channel of [0, 1]) {
        const source = inputs[channel]?.[0];
        this.block[channel][this.filled] = source ? source[i] : 0;
      }
      if (++this.filled === 2400) {
        this.port.postMessage(this.block.map((samples) => samples.slice()));
        this.filled = 0;
      }
    }
    return true;
  }
}
registerProcessor("recorder", Recorder);
