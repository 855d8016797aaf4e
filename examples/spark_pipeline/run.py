"""Runs the pipeline beside a node and a gateway of its own, and prints what it made.

It needs Java 17 and: pip install 'medusa-streams[spark-connect]'
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.dataset as ds
import pyspark

import medusa as md

HERE = Path(__file__).resolve().parent
ROADS = {"ts": "int64", "seg": "int64", "speed": "float64"}


def queries() -> list[md.Query]:
    roads, fines = md.Query("roads"), md.Query("fines")
    roads.sink("all", roads.source("cars", ROADS, time="ts", unit="s", slack="5s"))
    fines.sink("out", fines.source("cars", {"seg": "int64", "speed": "float64"}, time=None))
    return [roads, fines]


def run_pipeline(folder: Path, endpoint: str) -> None:
    """``spark-pipelines run``, as on a command line."""
    shutil.copytree(HERE, folder / "project", ignore=shutil.ignore_patterns("run.py", "__pycache__"))
    spec = folder / "project" / "spark-pipeline.yml"
    text = spec.read_text().replace("ENDPOINT", endpoint)
    spec.write_text(text.replace("STORAGE", (folder / "storage").as_uri()))
    program = Path(pyspark.__file__).parent / "bin" / "spark-pipelines"
    env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"} | dict(os.environ)
    command = [program, "--conf", "spark.connect.grpc.binding.address=127.0.0.1", "run"]
    done = subprocess.run(command, cwd=folder / "project", env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="medusa-") as base:
        folder = Path(base)
        address = f"ipc://{folder}/node"
        node = md.node({"name": "edge", "listen": address, "data": str(folder / "edge")})
        with node, md.connect(address) as fed, md.spark.gateway(address, folder / "gateway") as gateway:
            for query in queries():
                fed.deploy(query)
            speeds = [50.0, 95.0, 70.0, 90.0, 85.0, 40.0]
            times, segments = [1, 2, 12, 3, 14, 25], [1, 2, 1, 1, 2, 1]
            fed.publish("roads.cars", {"ts": times, "seg": segments, "speed": speeds})
            fed.finish("roads.cars")
            fed.flush("60s")
            run_pipeline(folder, gateway.address)
            gateway.flush("60s")
            print("cars:")
            table = ds.dataset(folder / "project" / "spark-warehouse" / "cars", format="parquet").to_table()
            for row in table.sort_by("_seq").to_pylist():
                print("  " + "  ".join(str(value) for value in row.values()))
            fines: list[dict[str, float]] = []
            with fed.subscribe("fines.out", from_="oldest") as trains:
                while len(fines) < 3:
                    fines += trains.next("60s").batch.to_pylist()
            print("fines:")
            for row in fines:
                print(f"  {row['seg']}  {row['speed']}")


if __name__ == "__main__":
    main()
