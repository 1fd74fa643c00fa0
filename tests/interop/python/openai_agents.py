"""`openai-agents`: a RealtimeRunner, with `url` at the edge."""

import asyncio
import time

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner
from steps import KEY, MODEL, RATE, URL, WEASELS, Microphone, main, until


async def work(run):
    asked = []

    @function_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return f"It is sunny in {city}."

    agent = RealtimeAgent(name="Tester", instructions="Be brief.", tools=[get_weather])
    input = {"transcription": {"model": "gpt-4o-mini-transcribe"}, "turn_detection": {"type": "semantic_vad", "interrupt_response": True}}
    settings = {"model_name": MODEL, "audio": {"input": input}}
    runner = RealtimeRunner(starting_agent=agent, config={"model_settings": settings})
    url = f"{URL.replace('http', 'ws', 1)}/v1/realtime?model={MODEL}"
    session = await runner.run(model_config={"url": url, "api_key": KEY, "initial_model_settings": settings})
    # What the app sees: sound, interruptions, tools, errors, the conversation.
    kinds = []
    played = bytearray()
    # When each response was made: the SDK's clock of what is played starts behind it, with the first sound.
    created = []
    history = []
    errors = []

    async def listen():
        async for event in session:
            kinds.append(event.type)
            if event.type == "raw_model_event" and event.data.type == "raw_server_event":
                run.saw(event.data.data)
                if event.data.data["type"] == "response.created":
                    created.append(time.monotonic())
            elif event.type == "audio":
                played.extend(event.audio.data)
            elif event.type == "error":
                errors.append(str(event.error))
            elif event.type == "history_updated":
                history[:] = event.history
            elif event.type == "history_added":
                history.append(event.item)

    def shows(role, text):
        parts = [part for item in history if item.type == "message" and item.role == role for part in item.content]
        return any(text in (getattr(part, "transcript", None) or getattr(part, "text", None) or "") for part in parts)

    async with session:
        listening = asyncio.create_task(listen())
        async with run.step("connects, and its settings count"):
            await run.came("session.updated")
            assert run.last("session.updated")["session"]["instructions"] == "Be brief."
        async with run.step("a written turn is answered, in sound and words"):
            await session.send_message("Hello.")
            await until("the answer", lambda: shows("assistant", "Hello, what can I do for you?"))
            await until("its end", lambda: "audio_end" in kinds)
            assert len(played) > RATE * 2 * 1.4, len(played)
            # It is played; what is said into it would end it.
            await asyncio.sleep(len(played) / RATE / 2)
        async with Microphone(session.send_audio) as microphone:
            async with run.step("a spoken turn is heard and answered"):
                played.clear()
                microphone.say(WEASELS)
                await until("the user's words", lambda: shows("user", "Weasels have eaten our phone system."))
                await until("a second of it", lambda: len(played) > RATE * 2)
            async with run.step("talking into the answer ends it, at what was played") as figures:
                microphone.say(WEASELS)
                await until("audio_interrupted", lambda: "audio_interrupted" in kinds)
                figures["audio_end_ms"] = await run.cut()
                # Far more was received: it plays by the clock.
                assert 0 < figures["audio_end_ms"] < (time.monotonic() - created[-1]) * 1000 < len(played) / RATE / 2 * 1000
                await until("its end", lambda: any(e["type"] == "response.done" and e["response"]["status"] == "cancelled" for e in run.events))
            async with run.step("a tool is called, and its result is told"):
                await until("tool_end", lambda: "tool_end" in kinds)
                await until("the answer", lambda: shows("assistant", "It is sunny in Rome"))
                assert asked == ["Rome"]
                assert errors == [], errors
        await session.close()
        await listening


main("openai-agents", work)
