"""What a pool does with what its provider raises, over a real node that lacks nobody."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

import medusa as md
from medusa.runtime.pool.pool_loop import PoolLoop, opened_pool


class Moody:
    """A provider that raises: in ``acquire``, or in ``nodes``."""

    def __init__(self, nodes: Mapping[str, str], *, where: str) -> None:
        self._where = where

    def acquire(self, now_us: int, node: str) -> None:
        if self._where == "acquire":
            raise RuntimeError("the quota is used up")

    def release(self, now_us: int, node: str) -> None: ...

    def nodes(self, now_us: int) -> Mapping[str, md.ProvidedNode]:
        if self._where == "nodes":
            raise RuntimeError("no answer from the cloud")
        return {}


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("acquire", "couldn't acquire spare: RuntimeError: the quota is used up"),
        ("nodes", "nothing is known: the provider can't say how its nodes are: RuntimeError: no answer from"),
    ],
)
def test_what_a_provider_raises_is_told_and_the_pool_goes_on(tmp_path: Path, where: str, said: str) -> None:
    lines: list[str] = []
    turned = threading.Event()

    def say(level: str, what: str, **fields: str) -> None:
        node = f" {fields['node']}" if "node" in fields else ""
        lines.append(f"{what}{node}: {fields.get('why', '')}")
        if level == "warning":
            turned.set()

    with md.node({"name": "gate", "listen": "tcp://127.0.0.1:*", "store": "memory"}) as gate:
        path = tmp_path / "pool.toml"
        path.write_text(
            f'node = "{gate.address}"\nevery = "100ms"\nwarm = 1\n[nodes]\nspare = "x"\n[provider]\n'
            f'class = "tests.runtime.test_pool_loop:Moody"\noptions = {{ where = "{where}" }}\n'
        )
        over = threading.Event()
        with opened_pool(path, say) as loop:
            thread = threading.Thread(target=PoolLoop.run, args=(loop, over))
            thread.start()
            assert turned.wait(60)
            assert thread.is_alive()
            over.set()
            thread.join(60)
            assert not thread.is_alive()
    assert any(line.startswith(said) for line in lines), lines
