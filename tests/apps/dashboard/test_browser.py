"""The page in a real browser: it draws, lives, and outlives nodes, links and the server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import medusa as md
from medusa.apps.workloads.network.net import Net
from tests.apps.dashboard.browser import MISSING, browser
from tests.system.network import needs_network
from tests.system.nodes import DEADLINE_S, RUN, ForkedNodes, first_line, until
from tests.system.test_partitions import Keyed

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(bool(MISSING) and not os.environ.get("CI"), reason=MISSING),
]

NAMES = ["core", "edge", "spare"]
"""The page is told of one of them; that one knows the others."""


def query() -> md.Query:
    q = md.Query("cars")
    cars = q.source("cars", {"ts": "int64", "speed": "float64"}, time="ts", unit="s")
    q.sink("fast", cars.filter("speed > 8", name="quick"))
    return q


class Publishing:
    """Publishes into the edge, a few rows at a time, until it is closed."""

    def __init__(self, address: str, standby: dict[str, list[str]] | None = None) -> None:
        self._fed = md.connect(address, "60s")
        self._fed.deploy(query(), at={"edge": ["cars"], "core": ["quick"]}, standby=standby)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        at = 0
        while not self._done.wait(0.05):
            self._fed.publish("cars.cars", {"ts": list(range(at, at + 20)), "speed": [9.0] * 20})
            at += 20

    def close(self) -> None:
        self._done.set()
        self._thread.join(DEADLINE_S)
        self._fed.close()


@contextmanager
def dashboard(addresses: list[str]) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, *command(addresses)], stdout=subprocess.PIPE, text=True
    )
    try:
        yield process, json.loads(first_line(process))["url"]
    finally:
        process.kill()
        process.communicate()


def command(addresses: list[str]) -> list[str]:
    nodes = [word for each in addresses for word in ("--node", each)]
    return ["dashboard", *nodes, "--listen", "127.0.0.1:0", "--json"]


class Page:
    """What can be seen on the page, and what a hand can do there."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def run(self, script: str, *given: Any) -> Any:
        return self._driver.execute_script(script, *given)

    def keys(self) -> set[str]:
        return set(
            self.run("return [...document.querySelectorAll('#drawing [data-key]')].map(e => e.dataset.key)")
        )

    def text(self, key: str) -> str:
        return self.run(
            "return document.querySelector(`[data-key='${arguments[0]}']`)?.textContent ?? ''", key
        )

    def kind(self, key: str) -> str:
        script = "return document.querySelector(`[data-key='${arguments[0]}']`)?.getAttribute('class') ?? ''"
        return self.run(script, key)

    def state(self) -> str:
        return self.run("return document.getElementById('state').textContent")

    def details(self) -> dict[str, str]:
        script = """return [...document.querySelectorAll('#details:not([hidden]) #lines tr')]
            .map(row => [row.cells[0].textContent, row.cells[1].textContent])"""
        return dict(self.run(script))

    def press(self, key: str) -> None:
        from selenium.webdriver.common.keys import Keys

        self._driver.switch_to.active_element.send_keys(getattr(Keys, key))

    def focus(self, key: str) -> None:
        self.run("document.querySelector(`[data-key='${arguments[0]}']`).focus()", key)

    def focused(self) -> str:
        return self.run("return document.activeElement.dataset?.key ?? document.activeElement.id")

    @contextmanager
    def told(self) -> Iterator[None]:
        """Print what the page shows where the body fails."""
        try:
            yield
        except AssertionError:
            kinds = {key: (self.kind(key), self.text(key)) for key in sorted(self.keys())}
            print(f"the page: {self.state()}; {kinds}; {self.complaints()}")
            raise

    def complaints(self) -> list[str]:
        return [
            each["message"] for each in self._driver.get_log("browser") if "events" not in each["message"]
        ]


STREAM = "stream cars.cars edge cars/cars core cars/quick"
BOX = "box core cars/quick quick"


def rows(page: Page) -> int:
    return int(page.details()["rows in"].rpartition(", ")[0].replace(",", ""))  # "1,234, 56/s"


def test_the_page_draws_and_lives_and_outlives_a_node(tmp_path: Path) -> None:
    nodes = ForkedNodes(tmp_path, NAMES)
    try:
        nodes.start()
        publishing = Publishing(nodes.addresses["edge"])
        try:
            with dashboard([nodes.addresses["edge"]]) as (server, url), browser() as driver:
                driver.get(url)
                watch(Page(driver), nodes, server)
        finally:
            publishing.close()
    finally:
        nodes.close()


def watch(page: Page, nodes: ForkedNodes, server: subprocess.Popen[str]) -> None:
    # It draws the network.
    until(lambda: page.kind(STREAM) == "stream flowing", what="the stream flows")
    assert page.keys() >= {*(f"node {name}" for name in NAMES), "fragment edge cars/cars", BOX, STREAM}
    until(lambda: page.state() == "3 nodes", what="all have answered")
    # It is asked by keyboard, it lives, and keeps the focus while it does.
    page.focus(BOX)
    page.press("ENTER")
    until(lambda: "waits for" in page.details(), what="the details show")
    assert page.focused() == "title"
    before = rows(page)
    until(lambda: rows(page) > before, what="a number grows")
    page.press("ESCAPE")
    assert page.details() == {}
    assert page.focused() == BOX
    drawn = page.text(BOX)
    until(lambda: page.text(BOX) != drawn, what="the drawing changes")
    assert page.focused() == BOX
    # A node dies: it is shown, the others go on. It comes back, and all is as before.
    nodes.kill("core")
    until(lambda: page.kind("node core") == "node unreachable", what="the death shows")
    assert "unreachable, last seen" in page.text("node core")
    until(lambda: page.kind(STREAM) == "stream cut", what="its stream is cut")
    until(lambda: page.state() == "3 nodes; no answer from core", what="only it doesn't answer")
    edge = page.text("node edge")
    until(lambda: page.text("node edge") != edge, what="the others go on")
    nodes.start("core")
    until(lambda: page.kind("node core") == "node up", what="it is back")
    until(lambda: page.kind(STREAM) == "stream flowing", what="its stream flows again")
    assert page.complaints() == []
    # The server dies: the page says so.
    server.kill()
    until(lambda: page.state().startswith("the server doesn't answer"), what="the silence is told")


def test_who_stands_by_shows_and_that_nobody_does_any_more(tmp_path: Path) -> None:
    nodes = ForkedNodes(tmp_path, NAMES)
    try:
        nodes.start()
        publishing = Publishing(nodes.addresses["edge"], {"core": ["spare"]})
        try:
            with dashboard([nodes.addresses["edge"]]) as (_, url), browser() as driver:
                driver.get(url)
                page = Page(driver)
                with page.told():
                    watch_standby(page, nodes)
        finally:
            publishing.close()
    finally:
        nodes.close()


def watch_standby(page: Page, nodes: ForkedNodes) -> None:
    key = "standby spare cars/quick"
    table = (
        "return [...document.querySelectorAll('#standby:not([hidden]) #standbys td')].map(e => e.textContent)"
    )
    until(lambda: page.kind(key) == "standby following", what="the spare follows")
    assert page.text(key).strip().startswith("spare stands by for cars/quick at core: following")
    assert page.run(table)[:3] == ["cars/quick", "core", "spare"]
    until(lambda: page.state() == "3 nodes", what="all have answered")
    page.focus("follows spare cars/quick")
    page.press("ENTER")
    until(lambda: page.details().get("has it") == "core", what="the details show")
    nodes.kill("spare")
    until(lambda: page.kind(key) == "standby missing", what="it is missing")
    until(lambda: page.state().endswith("nobody could take over cars/quick"), what="that is told")
    until(lambda: page.kind("fragment core cars/quick") == "fragment alone", what="it is alone")
    until(lambda: "missing" in page.run(table)[3], what="the table says so")
    assert page.complaints() == []


def bounded() -> md.Query:
    q = md.Query("two")
    left, right = (
        q.source(name, {"ts": "int64", "v": "float64"}, time="ts", unit="s").filter(
            "v > 0", name=f"of_{name}"
        )
        for name in ("left", "right")
    )
    q.sink("out", left.union(right, name="both"), delay="1s")
    return q


@pytest.mark.full
@pytest.mark.issue(19)
def test_a_stream_that_is_not_stable_is_dashed_with_its_age_until_it_is_again(tmp_path: Path) -> None:
    nodes = ForkedNodes(tmp_path, NAMES)
    at = {"edge": ["left", "of_left"], "spare": ["right", "of_right"], "core": ["both"]}
    done = threading.Event()
    try:
        nodes.start()
        with md.connect(nodes.addresses["edge"], "60s") as fed:
            fed.deploy(bounded(), at=at)
            for name in ("left", "right"):
                fed.publish(f"two.{name}", {"ts": [0], "v": [1.0]})

            def publish() -> None:
                at_s = 1
                while not done.wait(0.05):
                    fed.publish("two.left", {"ts": [at_s], "v": [1.0]})
                    at_s += 1

            publishing = threading.Thread(target=publish, daemon=True)
            publishing.start()
            try:
                with dashboard([nodes.addresses["edge"]]) as (_, url), browser() as driver:
                    driver.get(url)
                    page = Page(driver)
                    with page.told():
                        watch_unstable(page, nodes)
            finally:
                done.set()
                publishing.join(DEADLINE_S)
    finally:
        nodes.close()


def watch_unstable(page: Page, nodes: ForkedNodes) -> None:
    dashed = (
        "return document.querySelector('#drawing .output.tentative > rect')?.getAttribute('stroke-dasharray')"
    )
    until(lambda: page.state() == "3 nodes" and page.run(dashed) is None, what="all is stable")
    nodes.processes["spare"].send_signal(signal.SIGSTOP)
    until(lambda: "not stable: two.out" in page.state(), what="it is told")
    until(lambda: page.run(dashed), what="the stream is dashed")
    keys = page.keys()
    [key] = [each for each in keys if each.startswith("output core ")]
    aged = re.compile(r"two\.out .* tentative for (\d+) s")
    until(
        lambda: aged.search(page.text(key.replace("output", "fragment").rpartition(" ")[0])), what="its age"
    )
    page.focus(key)
    page.press("ENTER")
    until(lambda: "of node spare, which isn't heard" in page.details().get("missing", ""), what="which input")
    nodes.processes["spare"].send_signal(signal.SIGCONT)
    until(lambda: page.state() == "3 nodes" and page.run(dashed) is None, what="it is stable again")
    assert page.complaints() == []


def test_a_link_that_is_cut_between_two_living_nodes_is_shown_until_it_is_whole(tmp_path: Path) -> None:
    needs_network()
    with Net(["a", "b", "pub"]) as net:
        keyed = Keyed(net, tmp_path, nodes=("a", "b"))
        try:
            with keyed.connect("pub", "a") as fed:
                fed.deploy(query(), at={"a": ["cars"], "b": ["quick"]})
                fed.publish("cars.cars", {"ts": [1], "speed": [9.0]})
            keys = ["--key", str(tmp_path / "pub.key")]
            for name in ("a", "b"):
                keys += ["--server-key", keyed.keys[name].public]
            words = [*command([keyed.address("a"), keyed.address("b")]), *keys]
            process = net.popen("pub", sys.executable, "-c", RUN, *words, stdout=subprocess.PIPE)
            try:
                url = json.loads(first_line(process))["url"]
                with net.on("pub"), browser() as driver:
                    driver.get(url)
                    page = Page(driver)
                    with page.told():
                        watch_cut(page, net)
            finally:
                process.kill()
                process.communicate()
        finally:
            keyed.close()


def watch_cut(page: Page, net: Net) -> None:
    stream = "stream cars.cars a cars/cars b cars/quick"
    crosses = "return document.querySelectorAll('#drawing .cut .cross').length"
    until(lambda: page.kind(stream) == "stream flowing", what="the stream flows")
    until(lambda: page.run(crosses) == 0, what="nothing is cut")
    net.cut(*net.between("a", "b"))
    until(lambda: page.kind(stream) == "stream cut", what="the cut shows")
    until(lambda: page.state() == "2 nodes; cut: a and b", what="the cut is told")
    until(lambda: page.kind("node a") == page.kind("node b") == "node up", what="both ends are up")
    until(lambda: page.run(crosses) == 1, what="one cross is drawn")
    net.heal()
    until(lambda: page.kind(stream) == "stream flowing", what="the stream flows again")
    until(lambda: page.state() == "2 nodes", what="nothing is wrong")
    assert page.complaints() == []
