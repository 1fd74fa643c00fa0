"""`websockets` by itself, and with the small windows that its servers use: each as it is made by default, so with permessage-deflate."""

import json

import websockets
from steps import KEY, MODEL, URL, main
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory

INSTRUCTIONS = "\n".join(f"Rule {n}: be brief." for n in range(2000))
SMALL = ClientPerMessageDeflateFactory(server_max_window_bits=12, client_max_window_bits=9)
TINY = ClientPerMessageDeflateFactory(server_max_window_bits=9)


async def work(run):
    target = f"{URL.replace('http', 'ws')}/v1/realtime?model={MODEL}"
    ways = [
        ("asks by itself", {}, True),
        ("asks for small windows", {"extensions": [SMALL], "compression": None}, True),
        ("asks for a window that is too small, and goes without", {"extensions": [TINY], "compression": None}, False),
        ("does not ask", {"compression": None}, False),
    ]
    for title, options, compressed in ways:
        async with run.step(title):
            headers = {"Authorization": f"Bearer {KEY}"}
            async with websockets.connect(target, additional_headers=headers, **options) as socket:
                assert bool(socket.protocol.extensions) == compressed, socket.response.headers
                created = json.loads(await socket.recv())
                assert created["type"] == "session.created", created
                run.saw(created)
                for _ in range(3):
                    update = {"type": "session.update", "session": {"type": "realtime", "instructions": INSTRUCTIONS}}
                    await socket.send(json.dumps(update))
                    updated = json.loads(await socket.recv())
                    assert updated["session"]["instructions"] == INSTRUCTIONS, updated["type"]
                    run.saw(updated)


main("websockets", work)
