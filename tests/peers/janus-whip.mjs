// WHIP in front of Janus' echotest: POST an offer to /whip (201, Location), DELETE there hangs up. Janus' HTTP API is the
// one argument, e.g. http://127.0.0.1:8088/janus. No media passes through here.

import { randomUUID } from "node:crypto";
import { Agent, createServer, request } from "node:http";

const JANUS = process.argv[2];
const agent = new Agent({ keepAlive: true });

/** One request to Janus; `body` makes it a POST. */
function ask(path, body) {
  return new Promise((resolve, reject) => {
    const asked = request(`${JANUS}${path}`, { method: body ? "POST" : "GET", agent }, async (response) => {
      try {
        const reply = JSON.parse((await response.toArray()).join(""));
        if (reply.janus === "error") throw new Error(reply.error.reason);
        resolve(reply);
      } catch (error) {
        reject(error);
      }
    });
    asked.on("error", reject);
    asked.end(body && JSON.stringify({ transaction: randomUUID(), ...body }));
  });
}

async function open(offer) {
  const session = (await ask("", { janus: "create" })).data.id;
  const handle = (await ask(`/${session}`, { janus: "attach", plugin: "janus.plugin.echotest" })).data.id;
  await ask(`/${session}/${handle}`, { janus: "message", body: { audio: true, video: false }, jsep: { type: "offer", sdp: offer } });
  // Events come one a request, with pauses as keep-alives; the answer is in one of the first.
  for (let turn = 0; turn < 10; turn++) {
    const event = await ask(`/${session}`);
    if (event.jsep) return { session, answer: event.jsep.sdp };
    const fault = event.plugindata?.data.error;
    if (fault) throw new Error(fault);
  }
  throw new Error("no answer among ten events");
}

const server = createServer(async (incoming, outgoing) => {
  try {
    const session = /^\/whip\/(\d+)$/.exec(incoming.url)?.[1];
    if (incoming.method === "POST" && incoming.url === "/whip") {
      const { session, answer } = await open((await incoming.setEncoding("utf8").toArray()).join(""));
      outgoing.writeHead(201, { "content-type": "application/sdp", location: `/whip/${session}` }).end(answer);
    } else if (incoming.method === "DELETE" && session) {
      await ask(`/${session}`, { janus: "destroy" });
      outgoing.writeHead(200).end();
    } else {
      outgoing.writeHead(404).end();
    }
  } catch (error) {
    outgoing.writeHead(502).end(`${error.message}\n`);
  }
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/whip`));
