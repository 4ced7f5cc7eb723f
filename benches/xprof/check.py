"""Reads a profile with XProf's own converter, and checks what it finds.

    python3 -m venv venv && venv/bin/pip install -r benches/xprof/requirements.txt
    BURN_TPU_TEST_PROFILE_DIR=traces cargo test --workspace --test recording a_profile_for_xprof
    venv/bin/python benches/xprof/check.py traces

It prints what each tool of XProf returned, and fails if one fails, if the rows of the devices have Burn ops for less than
90 % of their time, or if the ops that the host recorded are not among XProf's framework ops.
"""

import glob
import json
import os
import sys

from xprof.convert import raw_to_tool_data

TOOLS = ["trace_viewer", "trace_viewer@", "overview_page", "framework_op_stats", "hlo_stats", "op_profile", "input_pipeline_analyzer"]
DEVICE = "/device:"


def convert(path, tool):
    """Returns what a tool makes of a profile, as text."""
    data, _ = raw_to_tool_data.xspace_to_tool_data([path], tool, {"use_saved_result": False})
    assert data, f"{tool} returned nothing"
    return data if isinstance(data, str) else data.decode(errors="replace")


def device_rows(trace):
    """Returns the events of the devices in the trace viewer's data."""
    rows = json.loads(trace)["traceEvents"]
    devices = {row["pid"] for row in rows if row.get("name") == "process_name" and row["args"]["name"].startswith(DEVICE)}
    return [row for row in rows if row.get("ph") == "X" and row["pid"] in devices]


def named_share(rows):
    """Returns the share of the rows' time in rows that name their Burn ops."""
    time = lambda rows: sum(row["dur"] for row in rows)
    return time([row for row in rows if row.get("args", {}).get("burn_ops")]) / time(rows)


def host_ops(stats):
    """Returns names and counts of the ops of the host in XProf's framework op stats."""
    with_idle, _ = json.loads(stats)
    values = [[cell["v"] for cell in row["c"]] for row in with_idle["rows"]]
    return {row[3]: int(row[4]) for row in values if row[1] == "Host" and row[3] != "IDLE"}


def main(folder):
    runs = sorted(glob.glob(os.path.join(folder, "plugins", "profile", "*", "*.xplane.pb")))
    assert runs, f"{folder} has no profile"
    path = runs[-1]
    print(path)
    print("tools:", ", ".join(raw_to_tool_data.xspace_to_tool_names([path])))
    results = {tool: convert(path, tool) for tool in TOOLS}
    for tool, text in results.items():
        print(f"  {tool:24} {len(text):>9} characters")
    rows = device_rows(results["trace_viewer"])
    share = named_share(rows)
    print(f"device rows: {len(rows)}, of whose time {100 * share:.1f} % has the names of Burn ops")
    assert share >= 0.9
    ops = host_ops(results["framework_op_stats"])
    print("ops that the host recorded:", ", ".join(f"{name} {count}" for name, count in sorted(ops.items())[:8]), "…")
    assert ops.get("float_matmul"), ops


if __name__ == "__main__":
    main(sys.argv[1])
