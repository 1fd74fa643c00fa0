"""LiveKit's plugin for the Realtime API in an AgentSession, with `base_url` at the edge; microphone and loudspeaker stand in for a room."""

import asyncio
import time

import aiohttp
from livekit import rtc
from livekit.agents import Agent, AgentSession, RunContext, function_tool
from livekit.agents.voice.io import AudioInput, AudioOutput, AudioOutputCapabilities
from livekit.plugins import openai
from steps import KEY, MODEL, RATE, URL, WEASELS, Microphone, main, until


class Room(AudioInput):
    """What is said into the session."""

    def __init__(self):
        super().__init__(label="microphone")
        self._frames = asyncio.Queue()

    async def push(self, pcm):
        self._frames.put_nowait(rtc.AudioFrame(data=pcm, sample_rate=RATE, num_channels=1, samples_per_channel=len(pcm) // 2))

    async def __anext__(self):
        return await self._frames.get()


class Loudspeaker(AudioOutput):
    """Plays by the clock; what is interrupted tells how much of it was played."""

    def __init__(self):
        super().__init__(label="loudspeaker", capabilities=AudioOutputCapabilities(pause=False), sample_rate=RATE)
        self.seconds = 0.0
        self._begun = None
        self._end = None
        self.cut = []

    async def capture_frame(self, frame):
        await super().capture_frame(frame)
        if self._begun is None:
            self._begun = time.monotonic()
            self.on_playback_started(created_at=time.time())
        self.seconds += frame.duration

    def flush(self):
        super().flush()
        if self._begun is not None and self._end is None:
            rest = self._begun + self.seconds - time.monotonic()
            self._end = asyncio.get_running_loop().call_later(max(rest, 0), self._over, False)

    def clear_buffer(self):
        if self._begun is not None:
            self._over(True)

    def played(self):
        """Seconds of what is being played."""
        return 0 if self._begun is None else min(time.monotonic() - self._begun, self.seconds)

    def _over(self, interrupted):
        played = self.played()
        if self._end is not None:
            self._end.cancel()
        self._begun = self._end = None
        self.seconds = 0.0
        if interrupted:
            self.cut.append(played)
        self.on_playback_finished(playback_position=played, interrupted=interrupted)


class Tester(Agent):
    def __init__(self):
        super().__init__(instructions="Be brief.")
        self.asked = []

    @function_tool
    async def get_weather(self, context: RunContext, city: str) -> str:
        """The weather of a city."""
        self.asked.append(city)
        return f"It is sunny in {city}."


async def work(run):
    async with aiohttp.ClientSession() as http:
        model = openai.realtime.RealtimeModel(model=MODEL, base_url=f"{URL}/v1", api_key=KEY, http_session=http)
        session = AgentSession(llm=model, vad=None, turn_handling={"turn_detection": "realtime_llm"})
        room, loudspeaker, agent = Room(), Loudspeaker(), Tester()
        session.input.audio, session.output.audio = room, loudspeaker
        heard = []
        errors = []
        session.on("user_input_transcribed", lambda event: heard.append((event.transcript, event.is_final)))
        session.on("error", lambda event: errors.append(str(event.error)))

        def shows(role, text):
            return any(text in (item.text_content or "") for item in session.history.items if item.type == "message" and item.role == role)

        async with run.step("connects, and its settings count"):
            await session.start(agent, record=False)
            agent.realtime_llm_session.on("openai_server_event_received", lambda event: run.saw(dict(event)))
            await until("the tools", lambda: any(e["type"] == "session.updated" and e["session"]["tools"] for e in run.events))
            assert run.last("session.updated")["session"]["instructions"] == "Be brief."
        async with run.step("a written turn is answered, in sound and words"):
            await session.generate_reply(user_input="Hello.")
            assert shows("assistant", "Hello, what can I do for you?"), session.history.items
        async with Microphone(room.push) as microphone:
            async with run.step("a spoken turn is heard and answered"):
                microphone.say(WEASELS)
                await until("the user's words", lambda: ("Weasels have eaten our phone system.", True) in heard)
                await until("a second of the answer", lambda: loudspeaker.played() > 1)
            async with run.step("talking into the answer ends it, at what was played") as figures:
                microphone.say(WEASELS)
                figures["audio_end_ms"] = await run.cut()
                assert abs(figures["audio_end_ms"] - loudspeaker.cut[-1] * 1000) < 2, loudspeaker.cut
                await until("its end", lambda: any(e["type"] == "response.done" and e["response"]["status"] == "cancelled" for e in run.events))
            async with run.step("a tool is called, and its result is told"):
                await until("the answer", lambda: shows("assistant", "It is sunny in Rome"))
                assert agent.asked == ["Rome"]
                assert errors == [], errors
        await session.aclose()


main("livekit-plugins-openai", work)
