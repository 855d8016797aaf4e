"""What a pool does with what its provider raises, over a real node that lacks nobody."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main
from medusa.runtime.keys.key_files import CurveKey, ParticipantKey, read_public, write_key
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


@pytest.mark.parametrize(("rules", "sees"), [("status = true\n", True), ('subscribe = ["*"]\n', False)])
def test_of_a_node_with_keys_the_pool_is_a_client_that_may_see_the_status(
    tmp_path_factory: pytest.TempPathFactory, rules: str, sees: bool
) -> None:
    folder = tmp_path_factory.mktemp("k")
    alice = ParticipantKey.new()
    for name, kind in (("gate", "node"), ("pool", "client")):
        write_key(folder / f"{name}.key", kind, CurveKey.new())
    (folder / "gate.toml").write_text(
        f'name = "gate"\nlisten = "ipc://{folder}/gate.s"\ndata = "data"\nparticipant = "alice"\n'
        f'federation = "fed"\n[keys]\nnode = "gate.key"\n[participants.alice]\nkey = "{alice.key}"\n'
        f'[clients.pool]\nkey = "{read_public(folder / "pool.pub")}"\n{rules}'
    )
    (folder / "pool.toml").write_text(
        f'node = "ipc://{folder}/gate.s"\nwarm = 1\n[nodes]\nspare = "x"\n[keys]\nclient = "pool.key"\n'
        'node = "gate.pub"\n[provider]\nclass = "tests.runtime.test_pool_loop:Moody"\n'
        'options = { where = "" }\n'
    )
    with md.node(folder / "gate.toml"):
        told = CliRunner().invoke(main, ["pool", str(folder / "pool.toml"), "--dry-run"])
    if sees:
        assert told.exit_code == 0, told.output
        assert told.output.splitlines()[0] == "node spare: off"
        assert told.output.splitlines()[1].startswith("would acquire spare: 0 have nothing to do")
    else:
        assert told.exit_code == 1
        assert "status = true" in told.output
