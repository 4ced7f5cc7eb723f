"""Draws a profile as a small SVG: the phases of the host and the programs of the device over time.

    python3 benches/xprof/picture.py traces/plugins/profile/RUN/HOST.trace.json.gz > docs/profile.svg
"""

import gzip
import json
import sys

WIDTH, LEFT, ROW = 900, 80, 26
ROWS = ["record", "cut", "dispatch", "transfer", "wait", "profiler", "device"]
COLORS = {"record": "#4c78a8", "cut": "#9ecae9", "dispatch": "#f58518", "transfer": "#54a24b", "wait": "#bab0ac",
          "profiler": "#e45756", "device": "#b279a2"}
# Narrower bars are drawn together with what follows them.
NARROWEST = 0.4


def events(path):
    """Yields the row, begin and end in milliseconds of each event."""
    rows = json.load(gzip.open(path))["traceEvents"]
    devices = {row["pid"] for row in rows if row["name"] == "process_name" and row["args"]["name"].startswith("/device:")}
    for row in rows:
        if row["ph"] == "X":
            kind = "device" if row["pid"] in devices else row["args"].get("phase")
            yield kind, row["ts"] / 1e3, (row["ts"] + row["dur"]) / 1e3


def joined(times, gap):
    """Returns times of which those closer than a gap are one."""
    union = []
    for begin, end in sorted(times):
        if union and begin <= union[-1][1] + gap:
            union[-1][1] = max(union[-1][1], end)
        else:
            union.append([begin, end])
    return union


def main(path):
    found = list(events(path))
    length = max(end for _, _, end in found)
    scale = (WIDTH - LEFT - 10) / length
    rows = [row for row in ROWS if any(kind == row for kind, _, _ in found)]
    height = ROW * len(rows) + 34
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">')
    print(f'<rect width="{WIDTH}" height="{height}" fill="white"/>')
    for place, row in enumerate(rows):
        top = 8 + place * ROW
        print(f'<text x="8" y="{top + 14}">{row}</text>')
        times = joined(((begin, end) for kind, begin, end in found if kind == row), NARROWEST / scale)
        for begin, end in times:
            width = max((end - begin) * scale, NARROWEST)
            print(f'<rect x="{LEFT + begin * scale:.1f}" y="{top}" width="{width:.1f}" height="18" fill="{COLORS[row]}"/>')
    bottom = 8 + ROW * len(rows)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000) if length / step <= 12)
    for tick in range(0, int(length) + 1, step):
        x = LEFT + tick * scale
        print(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{bottom}" stroke="#ddd"/><text x="{x:.1f}" y="{bottom + 16}">{tick} ms</text>')
    print("</svg>")


if __name__ == "__main__":
    main(sys.argv[1])
