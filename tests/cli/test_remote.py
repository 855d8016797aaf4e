"""``medusa remote``: a part that another node keeps, from definition to revocation."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import medusa as md
from medusa.cli.main import main


@pytest.fixture
def nodes(tmp_path):
    """Two nodes of one participant; the address of the first."""
    addresses = {name: f"ipc://{tmp_path}/{name}" for name in "ab"}
    configs = [
        {
            "name": name,
            "listen": addresses[name],
            "data": str(tmp_path / f"{name}.data"),
            "peers": {other: addresses[other] for other in "ab" if other != name},
        }
        for name in "ab"
    ]
    with md.node(configs[0]), md.node(configs[1]):
        yield addresses["a"]


def call(*arguments):
    result = CliRunner().invoke(main, ["remote", *map(str, arguments)])
    return result.exit_code, result.output


def test_define_list_and_revoke(nodes, tmp_path):
    q = md.Query("q")
    q.sink("out", q.source("rows", {"v": "int64"}, time=None).filter("v > 0", name="kept"))
    query, at = tmp_path / "q.json", tmp_path / "at.json"
    query.write_text(q.to_json())
    at.write_text(json.dumps({"a": ["rows", "out"], "b": ["kept"]}))
    define = ("define", "part", query, "--at", at, "--node", nodes, "--to")
    assert call(*define, "b") == (0, "b keeps part\n")
    assert call(*define, "b", "--json") == (0, '{"defined": "part", "at": "b"}\n')
    code, said = call(*define, "a")
    assert (code, said.startswith("error:")) == (1, True)
    assert call("list", "--node", nodes) == (0, "part  kept at b  q/kept\n")
    at_b = nodes[:-1] + "b"
    assert call("list", "--node", at_b) == (0, "local/part  kept here for a  q/kept  inputs: rows\n")
    found = json.loads(call("list", "--node", nodes, "--json")[1])
    assert found == {
        "defined": {"part": {"node": "b", "query": "q", "fragment": "q/kept", "expires_us": None}},
        "revoking": {},
        "kept": {},
        "stopped": {},
        "ended": {},
        "offers": {},
    }
    assert call(*define, "b", "--expires", "2h")[0] == 0
    assert "  q/kept  until 20" in call("list", "--node", nodes)[1]
    assert call("revoke", "part", "--node", nodes) == (0, "part is revoked\n")
    assert call("list", "--node", at_b) == (0, "")
    code, said = call("revoke", "part", "--node", nodes, "--json")
    assert code == 1
    assert "no remote definition 'part'" in said
