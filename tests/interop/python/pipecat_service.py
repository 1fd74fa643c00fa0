"""pipecat's service for the Realtime API in a pipeline, with `base_url` at the edge; microphone and loudspeaker stand in for a transport."""

import asyncio
import json
import time

from pipecat.frames.frames import EndFrame, ErrorFrame, InputAudioRawFrame, InterruptionFrame, LLMRunFrame, TTSTextFrame, TranscriptionFrame
from pipecat.observers.base_observer import BaseObserver
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.transports.base_input import BaseInputTransport
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner
from steps import KEY, MODEL, RATE, URL, WEASELS, Microphone, main, until


class Ear(BaseInputTransport):
    async def start(self, frame):
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def hear(self, pcm):
        await self.push_audio_frame(InputAudioRawFrame(audio=pcm, sample_rate=RATE, num_channels=1))


class Mouth(BaseOutputTransport):
    """Plays by the clock, as a sound card does."""

    def __init__(self, params):
        super().__init__(params)
        self.played = 0.0
        self._until = 0.0

    async def start(self, frame):
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame):
        seconds = len(frame.audio) / 2 / RATE
        self._until = max(self._until, time.monotonic()) + seconds
        await asyncio.sleep(self._until - time.monotonic())
        self.played += seconds
        return True


class Watch(BaseObserver):
    """What passes: words of both sides, interruptions, errors."""

    def __init__(self):
        super().__init__()
        self.user, self.agent, self.interruptions, self.errors = [], [], set(), []

    async def on_push_frame(self, data):
        frame = data.frame
        if isinstance(frame, TranscriptionFrame):
            self.user.append(frame.text)
        elif isinstance(frame, TTSTextFrame):
            self.agent.append(frame.text)
        elif isinstance(frame, InterruptionFrame):
            self.interruptions.add(frame.id)
        elif isinstance(frame, ErrorFrame):
            self.errors.append(frame.error)


async def work(run):
    asked = []

    async def get_weather(params: FunctionCallParams, city: str):
        """The weather of a city.

        Args:
            city: Its name.
        """
        asked.append(city)
        await params.result_callback(f"It is sunny in {city}.")

    parse = events.parse_server_event

    def noted(text):
        run.saw(json.loads(text))
        return parse(text)

    # What it receives is noted on its way into the service's own parser.
    events.parse_server_event = noted
    input = events.AudioInput(transcription=events.InputAudioTranscription(), turn_detection=events.SemanticTurnDetection())
    properties = events.SessionProperties(audio=events.AudioConfiguration(input=input))
    settings = OpenAIRealtimeLLMService.Settings(model=MODEL, system_instruction="Be brief.", session_properties=properties)
    service = OpenAIRealtimeLLMService(api_key=KEY, base_url=f"{URL.replace('http', 'ws', 1)}/v1/realtime", settings=settings)
    params = TransportParams(audio_in_enabled=True, audio_out_enabled=True, audio_in_sample_rate=RATE, audio_out_sample_rate=RATE)
    ear, mouth, watch = Ear(params), Mouth(params), Watch()
    context = LLMContext([{"role": "user", "content": "Hello."}], [get_weather])
    user, assistant = LLMContextAggregatorPair(context)
    pipeline = Pipeline([ear, user, service, mouth, assistant])
    rates = PipelineParams(audio_in_sample_rate=RATE, audio_out_sample_rate=RATE, enable_usage_metrics=True)
    worker = PipelineWorker(pipeline, params=rates, observers=[watch])
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())

    def says(who, text):
        return text in "".join(who)

    async with run.step("connects, and its settings count"):
        await run.came("session.updated")
        assert run.last("session.updated")["session"]["instructions"] == "Be brief."
    async with run.step("a written turn is answered, in sound and words"):
        await worker.queue_frames([LLMRunFrame()])
        await until("the answer", lambda: says(watch.agent, "Hello, what can I do for you?"))
        await until("its sound", lambda: mouth.played > 1.49)
    async with Microphone(ear.hear) as microphone:
        async with run.step("a spoken turn is heard and answered"):
            mouth.played = 0
            microphone.say(WEASELS)
            await until("the user's words", lambda: says(watch.user, "Weasels have eaten our phone system."))
            await until("a second of the answer", lambda: mouth.played > 1)
        async with run.step("talking into the answer ends it, at what was played") as figures:
            microphone.say(WEASELS)
            figures["audio_end_ms"] = await run.cut()
            assert abs(figures["audio_end_ms"] - mouth.played * 1000) < 400, mouth.played
            await until("its end", lambda: any(e["type"] == "response.done" and e["response"]["status"] == "cancelled" for e in run.events))
            await until("an interruption", lambda: watch.interruptions)
        async with run.step("a tool is called, and its result is told"):
            await until("the answer", lambda: says(watch.agent, "It is sunny in Rome"))
            assert asked == ["Rome"]
            assert watch.errors == [], watch.errors
    await worker.queue_frames([EndFrame()])
    await running


main("pipecat-ai", work)
