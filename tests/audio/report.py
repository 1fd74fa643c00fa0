"""What a reader sees of the measurements: tables in Markdown, charts as SVG."""

import re

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
STYLE = """<style>
  :root { --ink: #1f2328; --ground: #ffffff; --quiet: #59636e; --line: #d1d9e0; --first: #4269d0; --second: #2ca58d; --mark: #c2410c; }
  @media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --ground: #0d1117; --quiet: #9198a1; --line: #30363d; --first: #7c9cff; --second: #4fd1b0; --mark: #ffa657; } }
  text { fill: var(--ink); } .quiet { fill: var(--quiet); } .rule { stroke: var(--line); } .bound { stroke: var(--mark); stroke-dasharray: 5 4; stroke-width: 1.5; }
  .first { fill: var(--first); } .second { fill: var(--second); } .whisker { stroke: var(--ink); stroke-width: 1.5; }
</style>"""


def summary(measured):
    """For a terminal."""
    lines = []
    for figure in measured["figures"]:
        state = "ok" if figure["ok"] else "BEYOND" if figure["value"] is not None else "NOT MEASURED"
        bound = "" if figure["bound"] is None else f"<= {figure['bound']:g}"
        value = "-" if figure["value"] is None else f"{figure['value']:g}"
        lines.append(f"{'' if figure['bound'] is None else state:<13}{figure['name']:<58}{value:>10} {figure['unit']:<11}{bound}")
    lines.append(f"{measured['form']} form, {measured['seconds']} s: {'every bound holds' if measured['ok'] else 'not every bound holds'}")
    return "\n".join(lines)


def write(docs, measured):
    """The part of AUDIO.md between the marks, and the pictures it shows."""
    (docs / "audio").mkdir(exist_ok=True)
    for name, svg in charts(measured):
        (docs / "audio" / name).write_text(svg)
    page = docs / "AUDIO.md"
    text = page.read_text()
    before, rest = text.split(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{tables(measured)}\n{END}{rest.split(END)[1]}")


def tables(measured):
    flags = " --full" if measured["form"] == "full" else ""
    parts = [f"By `tests/audio/run{flags} --docs`, in {measured['seconds'] / 60:.0f} minutes.", "### Promises", promises(measured["figures"])]
    parts += ["### Voice activity", "![False positives and negatives by noise](audio/activity.svg)", activity(measured["activity"])]
    parts += ["### Sound over a reply", "![Times to silence, cut and resumption](audio/interruption.svg)", interruption(measured["interruption"])]
    parts += ["### Loss", losses(measured)]
    if "words" in measured:
        parts.insert(-1, "![Rise of word errors by condition](audio/words.svg)")
    if "enhancement" in measured:
        parts += ["### Enhancement", enhancement(measured["enhancement"])]
    return "\n\n".join(parts)


def table(head, rows):
    rows = [head, *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[n]) for row in rows) for n in range(len(head))]
    line = lambda row: "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"
    return "\n".join([line(rows[0]), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(line, rows[1:])])


def number(value, digits=1):
    return "-" if value is None else f"{value:.{digits}f}".rstrip("0").rstrip(".") if digits else f"{value:.0f}"


def promises(figures):
    rows = []
    for figure in figures:
        if figure["bound"] is not None:
            holds = "yes" if figure["ok"] else "**no**" if figure["value"] is not None else "not measured"
            rows.append([f"`{figure['name']}`", f"{number(figure['value'], 2)} {figure['unit']}", f"<= {figure['bound']:g}", holds, figure["note"]])
    return table(["figure", "measured", "bound", "holds", "how"], rows)


def condition(row):
    return row["noise"] if row["snr_db"] is None else f"{row['noise']} {row['snr_db']} dB"


def pair(values):
    return f"{values[0]:.0f} / {values[1]:.0f}"


def activity(rows):
    head = ["noise", "false positive %", "false negative %", "onset to decision, p50 / p95 ms", "end off by, p50 / p95 ms"]
    return table(head, [[condition(row), number(row["false_positive"]), number(row["false_negative"]), pair(row["onset_ms"]), pair(row["end_ms"])] for row in rows])


def interruption(rows):
    head = ["sound", "times", "woke", "paused", "cut", "to silence, p50 / p95 ms", "to the cut, p50 / p95 ms", "to resumption, p50 / p95 ms"]
    cell = lambda values, count: pair(values) if count else "-"
    return table(head, [
        [row["sound"], row["count"], row["woke"], row["paused"], row["cut"], cell(row["pause_ms"], row["paused"]), cell(row["commit_ms"], row["cut"]), cell(row["resume_ms"], row["paused"] - row["cut"])]
        for row in rows
    ])


def losses(measured):
    counted = {row["condition"]: row for row in measured.get("words", {}).get("conditions", [])}
    rows = []
    for name in dict.fromkeys(row["condition"] for row in measured["losses"]):
        of = [row for row in measured["losses"] if row["condition"] == name]
        average = lambda key: sum(row[key] for row in of) / len(of)
        words = counted.get(name)
        rise = f"{words['rise']:+.2f} (90 %: {words['lower']:+.2f} to {words['upper']:+.2f})" if words else "-"
        rows.append([name, number(average("lost")), number(average("repaired_ms"), 0), number(average("concealed_ms"), 0), number(average("snr_db")), rise])
    text = table(["condition", "lost %", "repaired ms/min", "concealed ms/min", "SNR of lost frames dB", "rise of word errors, points"], rows)
    words = measured.get("words")
    return text + (f"\n\nWithout loss {words['clean']:.2f} % of {words['words']} words in {words['prompts']} prompts are wrong." if words else "")


def enhancement(rows):
    head = ["option", "CPU per 20 ms, p50 / p99 us", "false positive %", "false negative %", "delay ms"]
    return table(head, [[row["option"], pair(row["cost_us"]), number(row["false_positive"]), number(row["false_negative"]), number(row["delay_ms"])] for row in rows])


def charts(measured):
    rows = [(condition(row), [(row["false_positive"], None, "first"), (row["false_negative"], None, "second")]) for row in measured["activity"]]
    yield "activity.svg", bars("Speech heard where none is, and missed where it is", "%", rows, 5, [("first", "false positive"), ("second", "false negative")])
    rows = []
    for row in measured["interruption"]:
        for key, what, count in [("pause_ms", "to silence", row["paused"]), ("commit_ms", "to the cut", row["cut"]), ("resume_ms", "to resumption", row["paused"] - row["cut"])]:
            if count:
                rows.append((f"{row['sound']}: {what}", [(row[key][0], None, "first"), (row[key][1], None, "second")]))
    yield "interruption.svg", bars("Sound over a reply", "ms", rows, None, [("first", "p50"), ("second", "p95")])
    if "words" in measured:
        rows = [(row["condition"], [(row["rise"], (row["lower"], row["upper"]), "first")]) for row in measured["words"]["conditions"]]
        yield "words.svg", bars("Rise of word errors over no loss", "points", rows, None, [("first", "rise; line: 90 % of resamples")])


def bars(title, unit, rows, bound, legend):
    """Horizontal bars, a group a row; a whisker where a value has a range."""
    left, right, top, step = 230, 620, 56, 15
    values = [end for _, row in rows for value, span, _ in row for end in (value, *(span or ()))]
    most = max([*values, bound or 0, 0.1]) * 1.05
    least = min([*values, 0])
    x = lambda value: left + (value - least) / (most - least) * (right - left)
    parts, y = [], top
    for label, row in rows:
        parts.append(f'<text x="{left - 10}" y="{y + step * len(row) / 2 + 4:.1f}" text-anchor="end">{label}</text>')
        for value, span, kind in row:
            near, far = sorted((x(0), x(value)))
            parts.append(f'<rect class="{kind}" x="{near:.1f}" y="{y}" width="{max(far - near, 1):.1f}" height="{step - 3}"/>')
            edge = far
            if span:
                middle = y + (step - 3) / 2
                parts.append(f'<line class="whisker" x1="{x(span[0]):.1f}" x2="{x(span[1]):.1f}" y1="{middle}" y2="{middle}"/>')
                edge = max(far, x(span[1]))
            parts.append(f'<text class="quiet" x="{edge + 5:.1f}" y="{y + step - 5}" font-size="11">{number(value, 2)}</text>')
            y += step
        y += 8
    if bound is not None:
        parts.append(f'<line class="bound" x1="{x(bound):.1f}" x2="{x(bound):.1f}" y1="{top - 6}" y2="{y}"/>')
        parts.append(f'<text class="quiet" x="{x(bound) + 4:.1f}" y="{top - 8}" font-size="11">bound of the mean {bound:g} {unit}</text>')
    parts.append(f'<line class="rule" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{top - 6}" y2="{y}"/>')
    for n, (kind, text) in enumerate(legend):
        at = left + 150 * n
        parts.append(f'<rect class="{kind}" x="{at}" y="{y + 8}" width="12" height="12"/><text x="{at + 18}" y="{y + 18}">{text}</text>')
    height, width = y + 32, 700
    label = re.sub(r"[<>&]", "", title)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, sans-serif" font-size="13" role="img" aria-label="{label}">
{STYLE}
<rect width="{width}" height="{height}" fill="var(--ground)"/>
<text x="24" y="28" font-size="16" font-weight="650">{label}, {unit}</text>
{chr(10).join(parts)}
</svg>
"""
