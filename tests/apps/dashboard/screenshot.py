"""Takes the picture of the docs: ``python -m tests.apps.dashboard.screenshot docs/pictures/dashboard.png``.

Four nodes of two owners, three of which run the query of the demonstration at 60 times its pace. The fourth
dies, and the page is asked about a box.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from PIL import Image

import medusa as md
from medusa.apps.workloads.local_nodes import LocalNodes
from medusa.apps.workloads.netmon import AT, CORE, EDGES, deliveries, load_trace, query
from tests.apps.dashboard.browser import browser
from tests.system.nodes import RUN, first_line, until

SPEED = 60
SLICE_S = 0.2
SPARE = "spare"
OWNERS = {"edge-1": "campus", "edge-2": "campus", "core": "security", SPARE: "security"}
BOX = "box core netmon/per_src heavy_and_wide"
SIZE = (1500, 860)
COLOURS = 256


class Nodes(LocalNodes):
    """Nodes that say whose they are."""

    def _config(self, name: str) -> str:
        return f'participant = "{OWNERS[name]}"\n{super()._config(name)}'


def publish(addresses: dict[str, str], done: threading.Event) -> None:
    """Both edges get their halves of the trace."""
    parts = deliveries(load_trace())
    start = min(int(part.at_us[0]) for part in parts)
    step = int(SLICE_S * SPEED * 1e6)
    with ExitStack() as stack:
        feds = {edge: stack.enter_context(md.connect(addresses[edge])) for edge in EDGES}
        while not done.wait(SLICE_S):
            for part in parts:
                if len(rows := part.between(start, start + step)):
                    feds[part.edge].publish("netmon.flows", rows)
            start += step


@contextmanager
def dashboard(addresses: dict[str, str]) -> Iterator[str]:
    nodes = [word for each in addresses.values() for word in ("--node", each)]
    command = [sys.executable, "-c", RUN, "dashboard", *nodes, "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(first_line(process))["url"]
    finally:
        process.terminate()
        process.communicate()


def take(target: Path) -> None:
    """Run it all and write the picture."""
    done = threading.Event()
    with (
        tempfile.TemporaryDirectory() as folder,
        Nodes([*EDGES, CORE, SPARE], Path(folder)) as nodes,
        md.connect(nodes.addresses[CORE]) as fed,
    ):
        fed.deploy(query(), at=AT)
        publishing = threading.Thread(target=publish, args=(nodes.addresses, done))
        publishing.start()
        try:
            with dashboard(nodes.addresses) as url, browser(*SIZE) as driver:
                driver.get(url)

                def seen(script: str) -> object:
                    return driver.execute_script(f"return {script}")

                until(lambda: seen("document.querySelectorAll('#drawing .stream.flowing').length") == 2)
                seen(f"""document.querySelector('[data-key="{BOX}"]')
                    .dispatchEvent(new MouseEvent("click", {{bubbles: true}}))""")
                os.kill(nodes.pids[SPARE], signal.SIGKILL)
                until(lambda: seen("document.querySelector('.node.unreachable')?.textContent.includes('1')"))
                done.wait(6)  # rates are means over five seconds
                driver.save_screenshot(str(target))
                Image.open(target).quantize(COLOURS).save(target, optimize=True)
        finally:
            done.set()
            publishing.join()


if __name__ == "__main__":
    take(Path(sys.argv[1]))
