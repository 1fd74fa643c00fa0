// One process of a crowd: `crowd.mjs PORT COUNT FROM` opens COUNT connections to 127.0.0.1:PORT from addresses that begin at
// 127.0.0.FROM and keeps them until the other side closes them. Prints `{ opened, closed, failed, lost, answered, longest (ms) }` when all
// are over: a kernel whose queue is full forgets connections that this side takes for open, which a further byte shows. A process of its own, because each may hold so many descriptors only.

import { connect } from "node:net";
import { fileURLToPath } from "node:url";

const AT_ONCE = 500;
/** Longer than anything in the queue waits, with the time that it has then. */
const LOST_MS = 30_000;

/** What they say: nothing, half a frame of RFC 4571, a frame that is no check, or the beginning of a TLS record. */
const WORDS = [[], [0, 100, 0, 1], [0, 20, ...Array(20).fill(0)], [0x16, 3, 1, 2, 0, 1]].map((bytes) => Buffer.from(bytes));

function one(port, n, from) {
  return new Promise((resolve) => {
    const found = { opened: false, lost: false, answered: 0 };
    let probe;
    const socket = connect({ port, host: "127.0.0.1", localAddress: `127.0.${n % 8}.${from}` });
    let began;
    socket.on("connect", () => {
      [found.opened, began] = [true, performance.now()];
      socket.write(WORDS[n % WORDS.length]);
      probe = setTimeout(() => {
        found.lost = true;
        socket.write(Buffer.of(0));
      }, LOST_MS);
    });
    // Of TLS alone an alert may come.
    socket.on("data", (data) => (found.answered += n % WORDS.length === 3 ? 0 : data.length));
    socket.on("error", () => {});
    socket.on("close", () => {
      clearTimeout(probe);
      resolve({ ...found, ms: found.opened && !found.lost ? performance.now() - began : 0 });
    });
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [port, count, from] = process.argv.slice(2).map(Number);
  const under = new Set();
  const all = [];
  for (let n = 0; n < count; n++) {
    const connection = one(port, n, from);
    all.push(connection);
    under.add(connection);
    connection.then(() => under.delete(connection));
    if (n % AT_ONCE === AT_ONCE - 1) await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const found = await Promise.all(all);
  const number = (which) => found.filter(which).length;
  console.log(
    JSON.stringify({
      opened: number(({ opened }) => opened),
      closed: number(({ opened, lost }) => opened && !lost),
      lost: number(({ lost }) => lost),
      failed: number(({ opened }) => !opened),
      answered: number(({ answered }) => answered > 0),
      longest: Math.round(Math.max(...found.map(({ ms }) => ms))),
    }),
  );
}
