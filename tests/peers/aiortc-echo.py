"""A peer to compare with: aiortc as an echo server. WHIP in front: POST an offer to /whip (201, Location), DELETE there
hangs up.

aiortc decodes what it receives and encodes what it sends. Here it does neither, and its jitter buffer, which holds back
four packets, is left out too: the Opus payload goes from the receiver to the sender as it came. What is measured is
aiortc's ICE, DTLS, SRTP and RTP; an agent that listens and speaks pays for two codecs on top.
"""

import asyncio
import fractions
import itertools

import aioice.ice
import av
from aiohttp import web
from aiortc import RTCPeerConnection, RTCSessionDescription
from aiortc.rtcrtpreceiver import RTCRtpReceiver, StreamStatistics

# aioice leaves loopback out.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]

OPUS_CLOCK = fractions.Fraction(1, 48_000)


async def pass_on(self, packet, arrival_time_ms):
    """In place of the receiver's way to its decoder. Statistics stay, for its reports."""
    streams = self._RTCRtpReceiver__remote_streams
    if packet.ssrc not in streams:
        streams[packet.ssrc] = StreamStatistics(48_000)
    streams[packet.ssrc].add(packet)
    encoded = av.Packet(packet.payload)
    encoded.pts = packet.timestamp
    encoded.time_base = OPUS_CLOCK
    self.track._queue.put_nowait(encoded)


RTCRtpReceiver._handle_rtp_packet = pass_on


class Server:
    def __init__(self):
        self.sessions = {}
        self.ids = itertools.count(1)

    async def open(self, request):
        connection = RTCPeerConnection()

        @connection.on("track")
        def on_track(track):
            connection.addTrack(track)

        session = str(next(self.ids))
        self.sessions[session] = connection
        try:
            await connection.setRemoteDescription(RTCSessionDescription(await request.text(), "offer"))
            await connection.setLocalDescription(await connection.createAnswer())
        except Exception:
            await self.sessions.pop(session).close()
            raise
        return web.Response(
            status=201,
            text=connection.localDescription.sdp,
            content_type="application/sdp",
            headers={"Location": f"/whip/{session}"},
        )

    async def close(self, request):
        connection = self.sessions.pop(request.match_info["session"], None)
        if connection is None:
            raise web.HTTPNotFound
        await connection.close()
        return web.Response()


async def main():
    server = Server()
    app = web.Application()
    app.add_routes([web.post("/whip", server.open), web.delete("/whip/{session}", server.close)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    # The script that started it waits for this line.
    print(f"http://{host}:{port}/whip")
    await asyncio.Event().wait()


asyncio.run(main())
