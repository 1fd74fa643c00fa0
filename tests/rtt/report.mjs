// What a reader sees of the counts: a table, and ladders of packets on one time scale.

/** A Markdown table, columns aligned. */
export function table(results) {
  const cell = (rtt, ms) => (rtt === null || rtt === undefined ? "-" : `${rtt} (${ms} ms)`);
  const rows = [
    ["set-up", "media both ways", "channel open", "server's first message", "bound"],
    ...results.map((result) => [
      result.title,
      cell(result.rtt_to_media, result.ms_to_media),
      cell(result.rtt_to_open, result.ms_to_open),
      cell(result.rtt_to_first_message, result.ms_to_first_message),
      bound(result.bounds),
    ]),
  ];
  const widths = rows[0].map((_, n) => Math.max(...rows.map((row) => row[n].length)));
  const line = (row) => `| ${row.map((text, n) => text.padEnd(widths[n])).join(" | ")} |`;
  return [line(rows[0]), `|${widths.map((width) => "-".repeat(width + 2)).join("|")}|`, ...rows.slice(1).map(line)].join("\n") + "\n";
}

function bound({ media, open, message, every_run_ms }) {
  const parts = [
    media && `media ${media}`,
    open && `channel ${open}`,
    message && `message ${message}`,
    every_run_ms && `channel <= ${every_run_ms} ms in every run`,
  ];
  return parts.filter(Boolean).join(", ");
}

/** One line per packet and event of a run: ms at the client's side, depth as the chain has it. */
export function listing({ packets = [], start, ms, fault }) {
  const lines = packets.map((packet) => {
    const { dir, kind, len, stun, records = [], depth = "", dropped } = packet;
    const inside = stun ? ` ${stun.class}${stun.nominates ? " nominates" : ""}${stun.data ? ` data ${stun.data}` : ""}${stun.acks === undefined ? "" : ` acks ${stun.acks}`}` : "";
    const text = `${dir === "up" ? "-->" : "<--"} ${`${depth}`.padStart(2)} ${kind}${inside} ${len} ${records.join(" ")}${dropped ? " LOST" : ""}`;
    return { at: (packet.t_us - start) / 1000, text };
  });
  for (const [event, at] of Object.entries(ms)) lines.push({ at, text: `*** ${event}` });
  lines.sort((a, b) => a.at - b.at);
  return `${lines.map(({ at, text }) => `${at.toFixed(1).padStart(8)} ${text}\n`).join("")}${fault ? `${fault}\n` : ""}`;
}

const PANEL = 372;
const COLUMNS = 2;
const LANE = { left: 96, right: 256 };
const TOP = 86;
const PX_PER_MS = 1;
const COLORS = { check: "check", dtls: "dtls", sctp: "sctp", audio: "audio" };

/** Ladders two by two, the browser left and the edge right in each, time downward on one scale. */
export function timeline(runs, wayMs) {
  const rows = [];
  for (let at = 0; at < runs.length; at += COLUMNS) rows.push(runs.slice(at, at + COLUMNS));
  const width = 40 + Math.min(runs.length, COLUMNS) * PANEL + 44;
  let height = 0;
  const parts = rows.map((row) => {
    const last = Math.max(...row.map(({ ms }) => Math.max(ms.message ?? 0, ms.open ?? 0, ms.media ?? 0)));
    const endMs = Math.ceil((last + 20) / wayMs) * wayMs;
    const drawn = row.map((run, n) => panel(run, 40 + n * PANEL, endMs, wayMs, n === 0)).join("\n");
    const placed = `<g transform="translate(0 ${height.toFixed(0)})">${drawn}</g>`;
    height += TOP + endMs * PX_PER_MS + 34;
    return placed;
  });
  height = Math.round(height + 30);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="Packets of set-ups between browser and edge, ${2 * wayMs} ms round trip">
<style>
  :root { --ink: #1f2328; --ground: #ffffff; --quiet: #59636e; --line: #d1d9e0; --check: #8a929b; --dtls: #4269d0; --sctp: #9a63d8; --audio: #2ca58d; --mark: #c2410c; }
  @media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --ground: #0d1117; --quiet: #9198a1; --line: #30363d; --check: #767f8a; --dtls: #7c9cff; --sctp: #c39bff; --audio: #4fd1b0; --mark: #ffa657; } }
  text { fill: var(--ink); } .quiet { fill: var(--quiet); } .mark { fill: var(--mark); font-weight: 600; }
  .rule { stroke: var(--line); } .lane { stroke: var(--quiet); stroke-width: 1.5; } .halo { paint-order: stroke; stroke: var(--ground); stroke-width: 4px; stroke-linejoin: round; }
  ${Object.keys(COLORS).map((kind) => `.${kind} { stroke: var(--${kind}); } .${kind}-fill { fill: var(--${kind}); }`).join(" ")}
</style>
<rect width="${width}" height="${height}" fill="var(--ground)"/>
${legend(width, height)}
${parts.join("\n")}
</svg>
`;
}

function legend(width, height) {
  const entries = [["check", "connectivity check"], ["dtls", "DTLS, inside checks too"], ["sctp", "data channel"], ["audio", "audio"]];
  return entries
    .map(([kind, text], n) => `<line class="${kind}" stroke-width="2.5" x1="${40 + n * 205}" x2="${64 + n * 205}" y1="${height - 22}" y2="${height - 22}"/><text x="${72 + n * 205}" y="${height - 18}">${text}</text>`)
    .join("\n");
}

function panel(run, x, endMs, wayMs, first) {
  const y = (ms) => TOP + ms * PX_PER_MS;
  const left = x + LANE.left;
  const right = x + LANE.right;
  const parts = [
    `<text x="${(left + right) / 2}" y="24" text-anchor="middle" font-size="16" font-weight="650">${run.title}</text>`,
    `<text class="quiet" x="${(left + right) / 2}" y="43" text-anchor="middle">${summary(run)}</text>`,
    `<text class="quiet" x="${left}" y="${TOP - 14}" text-anchor="middle">browser</text>`,
    `<text class="quiet" x="${right}" y="${TOP - 14}" text-anchor="middle">edge</text>`,
  ];
  for (let ms = 0; ms <= endMs; ms += 2 * wayMs) {
    parts.push(`<line class="rule" x1="${left}" x2="${right}" y1="${y(ms)}" y2="${y(ms)}"/>`);
    if (first) parts.push(`<text class="quiet" x="${x - 4}" y="${y(ms) + 4}" text-anchor="middle">${ms} ms</text>`);
  }
  parts.push(`<line class="lane" x1="${left}" x2="${left}" y1="${y(0)}" y2="${y(endMs)}"/><line class="lane" x1="${right}" x2="${right}" y1="${y(0)}" y2="${y(endMs)}"/>`);

  const audio = new Set();
  const labeled = [];
  for (const packet of run.packets.filter(({ kind }) => kind !== "http" && kind !== "srtcp")) {
    const kind = kindOf(packet);
    const client = (packet.t_us - run.start) / 1000;
    const edge = (packet.edge_us - run.start) / 1000;
    if (Math.max(client, edge) > endMs || Math.min(client, edge) < 0) continue;
    // Of the audio the first packet of each side; the others follow each 20 ms and say nothing more.
    if (kind === "audio" && audio.has(packet.dir)) continue;
    if (kind === "audio") audio.add(packet.dir);
    const [x1, y1, x2, y2] = packet.dir === "up" ? [left, y(client), right, y(edge)] : [right, y(edge), left, y(client)];
    const faint = kind === "check" ? ' stroke-opacity="0.55"' : "";
    parts.push(`<line class="${kind}" stroke-width="${kind === "check" ? 1 : 2}"${faint} x1="${x1}" y1="${y1.toFixed(1)}" x2="${x2}" y2="${y2.toFixed(1)}"${packet.dropped ? ' stroke-dasharray="4 4"' : ""}/>`);
    const text = labelOf(packet);
    if (text) labeled.push({ text, kind, x: (packet.dir === "up" ? left : right) + 8, y: y1, dir: packet.dir });
  }
  // The browser's inside, the edge's outside; each kind of packet is named once per side.
  const placed = [];
  for (const label of labeled) {
    if (placed.some((other) => other.dir === label.dir && (Math.abs(other.y - label.y) < 14 || other.text === label.text))) continue;
    placed.push(label);
    parts.push(`<text class="${label.kind}-fill halo" style="fill: var(--${label.kind})" x="${label.x}" y="${(label.y + 4).toFixed(1)}" font-size="12">${label.text}</text>`);
  }
  const marks = [["open", "channel open"], ["message", "first message"], ["speak", "can speak"]]
    .filter(([event]) => run.ms[event] !== undefined && run.ms[event] <= endMs)
    .map(([event, text]) => ({ text, y: y(run.ms[event]) }))
    .sort((a, b) => a.y - b.y);
  let lowest = -Infinity;
  for (const mark of marks) {
    const at = Math.max(mark.y, lowest + 14);
    lowest = at;
    parts.push(`<circle cx="${left}" cy="${mark.y.toFixed(1)}" r="4" class="mark"/><text class="mark halo" x="${left - 8}" y="${(at + 4).toFixed(1)}" text-anchor="end" font-size="12">${mark.text.replace(" ", "\u00a0")}</text>`);
  }
  return `<g>${parts.join("\n")}</g>`;
}

const summary = ({ rtt }) => `channel after ${rtt.open.chain} round trip${rtt.open.chain === 1 ? "" : "s"}`;

function kindOf({ kind, records = [] }) {
  if (kind === "srtp") return "audio";
  if (records.length === 0) return kind === "stun" ? "check" : "dtls";
  return records.every((record) => record === "data") ? "sctp" : "dtls";
}

function labelOf({ kind, records = [], dir, stun }) {
  if (kind === "srtp") return "audio";
  if (records.includes("client_hello")) return stun ? "ClientHello in a check" : "ClientHello";
  if (records.includes("server_hello")) return "ServerHello to Finished";
  if (records.includes("handshake")) return "Finished";
  if (records.includes("data")) return "data channel";
  return undefined;
}
