"""The realtime client of `openai`, as its documentation has it, with `base_url` at the edge."""

import asyncio
import base64
import json

from openai import AsyncOpenAI
from steps import KEY, MODEL, RATE, URL, WEASELS, Microphone, main, until

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


async def work(run):
    client = AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY)
    async with client.realtime.connect(model=MODEL) as connection:

        async def listen():
            async for event in connection:
                run.saw(event.to_dict(mode="json"))

        listening = asyncio.create_task(listen())
        async with run.step("connects, and its update of the session counts"):
            await run.came("session.created")
            input = {"transcription": {"model": "gpt-4o-mini-transcribe"}, "turn_detection": {"type": "server_vad"}}
            await connection.session.update(session={"type": "realtime", "audio": {"input": input}, "tools": [TOOL]})
            await run.came("session.updated")
            assert run.last("session.updated")["session"]["tools"][0]["name"] == "get_weather"
        async with run.step("a written turn is answered in writing"):
            content = [{"type": "input_text", "text": "Hello."}]
            await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
            await connection.response.create(response={"output_modalities": ["text"]})
            await run.came("response.done")
            assert run.last("response.output_text.done")["text"] == "Hello, what can I do for you?"
            assert run.last("response.done")["response"]["usage"]["output_tokens"] > 0

        async def append(chunk):
            await connection.input_audio_buffer.append(audio=base64.b64encode(chunk).decode())

        async with Microphone(append) as microphone:
            async with run.step("a spoken turn is heard and answered"):
                microphone.say(WEASELS)
                await run.came("conversation.item.input_audio_transcription.completed")
                heard = run.last("conversation.item.input_audio_transcription.completed")
                assert heard["transcript"] == "Weasels have eaten our phone system."
                await run.came("response.created", 2)
                response = run.last("response.created")["response"]["id"]
                await until("a second of the answer", lambda: played(run.events, response) > RATE * 2)
            async with run.step("talking into the answer ends it, and the app truncates"):
                item = run.last("response.output_audio.delta")["item_id"]
                microphone.say(WEASELS)
                await run.came("input_audio_buffer.speech_started", 2)
                await connection.conversation.item.truncate(item_id=item, content_index=0, audio_end_ms=1500)
                await run.came("conversation.item.truncated")
                await run.came("response.done", 2)
                done = run.last("response.done")["response"]
                assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected"), done
                assert run.last("conversation.item.truncated")["audio_end_ms"] == 1500
            async with run.step("a tool is called, and its result is told"):
                await run.came("response.function_call_arguments.done")
                call = run.last("response.function_call_arguments.done")
                assert json.loads(call["arguments"]) == {"city": "Rome"}
                await run.came("response.done", 3)
                output = {"type": "function_call_output", "call_id": call["call_id"], "output": "It is sunny in Rome."}
                await connection.conversation.item.create(item=output)
                await connection.response.create()
                await run.came("response.done", 4)
                assert run.last("response.output_audio_transcript.done")["transcript"].startswith("It is sunny in Rome")
                assert not run.count("error")
        await connection.close()
        await listening


def played(events, response):
    """Bytes of sound of a response."""
    deltas = (e["delta"] for e in events if e["type"] == "response.output_audio.delta" and e["response_id"] == response)
    return sum(len(base64.b64decode(delta)) for delta in deltas)


main("openai", work)
