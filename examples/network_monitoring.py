"""Network monitoring: who scans a campus network, in a real trace with a botnet in it.

The shipped trace: CTU-13 scenario 11 (Garcia, Grill, Stiborek, Zunino: "An empirical comparison of
botnet detection methods", Computers & Security 45, 2014). `medusa demo netmon` runs more of it over
three processes.

Usage: python examples/network_monitoring.py
"""

from __future__ import annotations

import medusa as md
from medusa.apps.workloads.netmon import labelled_bots, load_trace


def query(schema: object) -> md.Query:
    q = md.Query("scans")
    flows = q.source("flows", schema, time="ts_us", unit="us", slack="2s")
    per_src = flows.window("1 min").group_by("src")
    counts = per_src.aggregate(flows=md.count(), ports=md.count_distinct("dport"), bytes=md.sum("bytes"))
    q.sink("scanners", counts.filter("flows > 100 AND ports > 10"))
    talks = flows.window("1 min").group_by("src", "dst").aggregate(bytes=md.sum("bytes"))
    q.sink("elephants", talks.select("src", "dst", "bytes").window("1 min").top(1, by="bytes"))
    # The first flow of a source to a port that it hasn't used for ten minutes.
    new = flows.filter("dport IS NOT NULL").distinct("src", "dport", within="10 min")
    q.sink("new_ports", new.window("1 min").group_by("src").aggregate(new=md.count()).filter("new > 300"))
    return q


def main() -> None:
    trace = load_trace().drop_columns("file_row")
    out = md.collect(query(trace.schema), flows=trace)
    scanners = out["scanners"].to_pylist()
    sources = {row["src"] for row in scanners}
    bots = labelled_bots()
    print(f"{trace.num_rows:,} flows; {len(scanners)} scans, by {len(sources)} sources")
    print(f"labelled as bots by the authors of the trace: {', '.join(sorted(sources & bots))}")
    worst = max(scanners, key=lambda row: row["ports"])
    print("most ports in a minute: {src}, {ports} ports with {flows:,} flows".format(**worst))
    most = max(out["elephants"].to_pylist(), key=lambda row: row["bytes"])
    print("largest talk in a minute: {src} to {dst}, {bytes:,} bytes".format(**most))
    for row in out["new_ports"].to_pylist():
        print("{window_start:%H:%M} {src} tried {new} new ports".format(**row))


if __name__ == "__main__":
    main()
