// The pictures of a comparison: CPU per packet as bars, tails as curves. Each has its own ground, which follows the
// reader's light or dark, and letters in the color that goes with it.

import * as Plot from "@observablehq/plot";
import { parseHTML } from "linkedom";

/** Of round trips, as far as a curve goes. */
export const PERCENTILES = ["p50", "p95", "p99", "p99.9"];

const WIDTH = 880;
const THEME = `
  :root { color: #1f2328; background: #ffffff; }
  @media (prefers-color-scheme: dark) { :root { color: #e6edf3; background: #0d1117; } }`;
/** One color per candidate, legible on both grounds. */
const COLORS = ["#4269d0", "#e8930c", "#e5484d", "#2ca58d", "#9a63d8", "#9c6b4e", "#e377c2", "#8a929b"];

/** `rows`: { name, sessions, cpu } of candidates; `controls`: { sessions, cpu } of the control, drawn as a line. */
export function cpuChart(rows, controls, names) {
  const present = names.filter((name) => rows.some((row) => row.name === name));
  const loads = [...new Set(rows.map(({ sessions }) => sessions))];
  return draw(names, {
    height: 70 + (24 * present.length + 44) * loads.length,
    marginLeft: 165,
    marginRight: 50,
    marginTop: 44,
    marginBottom: 48,
    x: { label: "CPU per echoed packet, µs (median); dashed: plain UDP echo", labelAnchor: "left", labelOffset: 44, grid: true, nice: true, zero: true },
    y: { label: null, domain: present, tickSize: 0 },
    fy: { axis: null, domain: loads, padding: 0.2 },
    marks: [
      Plot.text(loads, { fy: (sessions) => sessions, text: calls, frameAnchor: "top-left", dy: -15, fontWeight: "bold" }),
      Plot.barX(rows, { x: "cpu", y: "name", fy: "sessions", fill: "name", insetTop: 1, insetBottom: 1 }),
      Plot.text(rows, { x: "cpu", y: "name", fy: "sessions", text: ({ cpu }) => cpu.toFixed(cpu < 10 ? 1 : 0), dx: 4, textAnchor: "start" }),
      Plot.ruleX(controls, { x: "cpu", fy: "sessions", strokeDasharray: "4 3" }),
      Plot.ruleX([0]),
    ],
  });
}

/** `points`: { name, sessions, percentile, us }. */
export function tailChart(points, names) {
  const loads = [...new Set(points.map(({ sessions }) => sessions))];
  return draw(names, {
    height: 360,
    marginLeft: 60,
    marginTop: 40,
    marginRight: 180,
    x: { type: "point", domain: PERCENTILES, label: null },
    y: { type: "log", grid: true, label: "round trip, µs; medians", tickFormat: (us) => us.toLocaleString("en") },
    fx: { label: null, domain: loads, tickFormat: calls, padding: 0.08 },
    marks: [
      Plot.line(points, { x: "percentile", y: "us", fx: "sessions", stroke: "name", strokeWidth: 2 }),
      Plot.dot(points, { x: "percentile", y: "us", fx: "sessions", fill: "name", r: 3 }),
      ...names.flatMap((name, n) => [
        Plot.dot([loads.at(-1)], { fx: (sessions) => sessions, frameAnchor: "top-right", dx: 20, dy: 6 + 20 * n, fill: () => name, r: 4 }),
        Plot.text([name], { fx: () => loads.at(-1), frameAnchor: "top-right", dx: 30, dy: 20 * n, textAnchor: "start" }),
      ]),
    ],
  });
}

const calls = (sessions) => `${sessions.toLocaleString("en")} calls`;

function draw(names, options) {
  const { document } = parseHTML("<html><body></body></html>");
  const svg = Plot.plot({
    document,
    width: WIDTH,
    style: { fontSize: "12px" },
    color: { domain: names, range: names.map((_, n) => COLORS[n % COLORS.length]) },
    ...options,
  });
  svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const style = document.createElement("style");
  style.textContent = THEME;
  svg.appendChild(style);
  return `${svg.outerHTML}\n`;
}
