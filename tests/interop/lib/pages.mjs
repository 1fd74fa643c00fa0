// Apps on clients as they are shipped: bundled, and served on a port of their own, as an app's server is another one than the edge.

import { createServer } from "node:http";
import { build } from "esbuild";

const web = (name) => new URL(`../web/${name}`, import.meta.url).pathname;

/** Serves the page of `web/NAME.js`, and `recording` as /speech.wav; gives its address. */
export async function servePage(name, recording) {
  const { outputFiles } = await build({ entryPoints: [web(`${name}.js`)], bundle: true, format: "iife", platform: "browser", write: false, logLevel: "error" });
  const script = outputFiles[0].text;
  const page = `<!doctype html><meta charset="utf-8"><title>${name}</title><script src="/app.js"></script>`;
  const server = createServer(({ url }, response) => {
    const [type, body] = url === "/app.js" ? ["text/javascript", script] : url === "/" ? ["text/html", page] : url === "/speech.wav" && recording ? ["audio/wav", recording] : [undefined, ""];
    response.writeHead(type ? 200 : 404, { "Content-Type": type ?? "text/plain" }).end(body);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}
