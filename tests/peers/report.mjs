// From the runs of a comparison to what docs/PERFORMANCE.md says about it.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { PERCENTILES, cpuChart, tailChart } from "./charts.mjs";

const BEGIN = "<!-- tests/peers/compare writes from here -->";
const END = "<!-- to here -->";
const CONTROL = "plain UDP echo";
/** The members of `rtt_us` in the order of PERCENTILES. */
const KEYS = ["p50", "p95", "p99", "p999"];

/** Writes both charts and the part of PERFORMANCE.md between the markers, at its end when it has none. */
export function draw(output, result) {
  const summary = summarize(result);
  const names = [...new Set(summary.map(({ name }) => name)), CONTROL];
  const bars = summary.map(({ name, sessions, cpu }) => ({ name, sessions, cpu: cpu.median }));
  const controls = [...controlsOf(result)].map(([sessions, { cpu }]) => ({ sessions, cpu }));
  const curve = (name, sessions, rtt) => PERCENTILES.map((percentile, n) => ({ name, sessions, percentile, us: rtt[n] }));
  const points = [
    ...summary.flatMap(({ name, sessions, rtt }) => curve(name, sessions, rtt.map(({ median }) => median))),
    ...[...controlsOf(result)].flatMap(([sessions, { rtt }]) => curve(CONTROL, sessions, rtt)),
  ];
  writeFileSync(join(output, "performance/peers-cpu.svg"), cpuChart(bars, controls, names));
  writeFileSync(join(output, "performance/peers-tails.svg"), tailChart(points, names));

  const page = join(output, "PERFORMANCE.md");
  const text = existsSync(page) ? readFileSync(page, "utf8") : "# Performance\n";
  const [before, rest = ""] = text.split(BEGIN);
  const after = rest.split(END)[1] ?? "\n";
  const pictures = [
    "![CPU per echoed packet of each server](performance/peers-cpu.svg)",
    "![Round trips of each server](performance/peers-tails.svg)",
  ];
  writeFileSync(page, `${before.trimEnd()}\n\n${[BEGIN, table(result), ...pictures, END].join("\n\n")}${after}`);
}

/** Markdown: what it ran on, a table for each number of calls, our tail against the others' middle. */
export function table(result) {
  const summary = summarize(result);
  const controls = controlsOf(result);
  const parts = [ground(result)];
  for (const [sessions, control] of controls) {
    const rows = summary.filter((row) => row.sessions === sessions).map(rowOf);
    rows.push([CONTROL, number(control.cpu), "1", "", ...control.rtt.map(number), "", "", ""]);
    rows.push(["UDP echo in batches", number(control.batched), number(control.batched / control.cpu), "", "", "", "", "", "", "", ""]);
    const head = ["server", "CPU per packet, µs", `x ${CONTROL}`, "core busy", ...PERCENTILES.map((p) => `${p}, µs`), "lost", "late", "KiB per call"];
    parts.push(`**${sessions} calls**`, markdown([head, ...rows]), ...against(result, sessions));
  }
  parts.push(...absent(result));
  return parts.join("\n\n");
}

function ground({ date, repeats, seconds, load, machine, peers }) {
  const { placement } = machine;
  const where =
    placement.server_core === null ? "not pinned" : `servers on core ${placement.server_core}, generator on core ${placement.generator_core}`;
  const versions = Object.values(peers).map(({ name, version }) => `${name} ${version}`);
  return [
    `Measured ${date}: kernel ${machine.kernel}, ${machine.cpu}, ${machine.cores} cores; ${where}${placement.real_time ? ", real-time class" : ""};`,
    `load average ${load.before.toFixed(2)} before. 50 packets/s of 100 B each way per call, windows of ${seconds} s,`,
    `medians of ${repeats} interleaved rounds (in parentheses the lowest and the highest); the control of each run is its own.`,
    `${versions.join(", ")}.`,
  ].join("\n");
}

/** One entry per number of calls and candidate, over its runs that came to an end. */
function summarize({ runs, peers }) {
  return [...grouped(runs.filter(({ report }) => report), ({ candidate, sessions }) => `${sessions} ${candidate}`)].map(([, group]) => {
    const { candidate, sessions } = group[0];
    const { name, forwards = 1 } = peers[candidate];
    const over = (of) => spread(group.map(({ report }) => of(report)));
    return {
      candidate,
      name: forwards === 1 ? name : `${name}, per forwarded packet`,
      sessions,
      cpu: over((report) => report.cpu_us_per_packet / forwards),
      ratio: over((report) => report.cpu_ratio / forwards),
      busy: over((report) => report.cpu_percent),
      rtt: KEYS.map((key) => over((report) => report.rtt_us[key])),
      loss: over((report) => report.loss),
      late: over((report) => report.late),
      memory: over((report) => report.rss_kib_per_session),
    };
  });
}

/** By number of calls: medians of the controls over all runs. */
function controlsOf({ runs }) {
  const done = runs.filter(({ report }) => report);
  return new Map(
    [...grouped(done, ({ sessions }) => sessions)].map(([sessions, group]) => {
      const over = (of) => spread(group.map(({ report }) => of(report))).median;
      return [
        sessions,
        {
          cpu: over((report) => report.control_cpu_us_per_packet),
          batched: over((report) => report.batched_control_cpu_us_per_packet),
          rtt: KEYS.map((key) => over((report) => report.control_rtt_us[key])),
        },
      ];
    }),
  );
}

function rowOf({ name, cpu, ratio, busy, rtt, loss, late, memory }) {
  return [
    name,
    range(cpu),
    number(ratio.median),
    `${busy.median.toFixed(0)} %`,
    ...rtt.map((us, n) => (PERCENTILES[n] === "p99" ? range(us) : number(us.median))),
    share(loss.median),
    share(late.median),
    memory.median.toFixed(0),
  ];
}

/** Our p95 beside the p50 of the others, round by round. */
function against({ runs, peers }, sessions) {
  const present = Object.keys(peers);
  return present.filter(isOurs).flatMap((mine) => {
    const rounds = new Map(runs.filter((run) => run.candidate === mine && run.sessions === sessions).map((run) => [run.round, run.report]));
    const lines = present.filter((candidate) => !isOurs(candidate)).flatMap((candidate) => {
      const pairs = runs
        .filter((run) => run.candidate === candidate && run.sessions === sessions && run.report && rounds.get(run.round))
        .map((run) => [rounds.get(run.round).rtt_us.p95, run.report.rtt_us.p50]);
      if (!pairs.length) return [];
      const held = pairs.filter(([p95, p50]) => p95 <= p50).length;
      return [`${peers[candidate].name} ${pairs.map((pair) => pair.map(number).join("/")).join(", ")}: not above in ${held} of ${pairs.length}`];
    });
    return lines.length ? [`p95 of ${peers[mine].name} by the other's p50 of the same round, µs: ${lines.join("; ")}.`] : [];
  });
}

const isOurs = (candidate) => candidate.startsWith("fronthaul");

/** Who is not in a table, and why. */
function absent({ runs, peers }) {
  const name = (candidate) => peers[candidate]?.name ?? candidate;
  const failures = runs.filter(({ failure }) => failure).map((run) => `${name(run.candidate)} with ${run.sessions} calls, round ${run.round}: ${run.failure}.`);
  const largest = Math.max(...runs.map(({ sessions }) => sessions));
  const left = Object.keys(peers).flatMap((candidate) => {
    const carried = runs.filter((run) => run.candidate === candidate && run.report).map(({ sessions }) => sessions);
    if (Math.max(...carried) === largest) return [];
    const { most } = peers[candidate];
    if (most < largest) return [`${name(candidate)}: what it is measured with carries ${most} calls.`];
    return [`${name(candidate)} has no more to give at ${Math.max(...carried)} calls and was not asked to carry more.`];
  });
  return failures.length + left.length ? [[...left, ...failures].join(" ")] : [];
}

function grouped(items, keyOf) {
  const groups = new Map();
  for (const item of items) groups.set(keyOf(item), [...(groups.get(keyOf(item)) ?? []), item]);
  return groups;
}

function spread(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const median = sorted.length % 2 ? sorted[Math.floor(middle)] : (sorted[middle - 1] + sorted[middle]) / 2;
  return { median, least: sorted[0], most: sorted.at(-1) };
}

/** Three digits that count. */
function number(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(digits, 2) });
}

const range = ({ median, least, most }) => (least === most ? number(median) : `${number(median)} (${number(least)}-${number(most)})`);

const share = (part) => `${(100 * part).toLocaleString("en", { maximumFractionDigits: 3 })} %`;

const markdown = ([head, ...rows]) =>
  [head, head.map((_, n) => (n ? "---:" : "---")), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
