"""``medusa keygen``: keys in files, what participants sign, and what goes wrong."""

from __future__ import annotations

import json
import stat
import time

import pytest
from click.testing import CliRunner

from medusa.cli.main import main
from medusa.runtime.keys.key_files import read_curve_key, read_participant_key, verifier
from medusa.wire.statement import CONTEXT, Certificate, Revocation, from_text, opened

SAYS = ("--participant", "alice", "--federation", "fed")


def run(*arguments, code=0) -> str:
    done = CliRunner().invoke(main, [str(each) for each in arguments])
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture
def keys(tmp_path):
    for kind in ("node", "client", "participant"):
        run("keygen", kind, tmp_path / f"{kind}.key")
    return tmp_path


@pytest.mark.parametrize("kind", ["node", "client", "participant"])
def test_a_key_is_made_and_only_its_public_half_is_told(tmp_path, kind):
    path = tmp_path / "a.key"
    told = json.loads(run("keygen", kind, path, "--json"))
    read = read_participant_key if kind == "participant" else read_curve_key
    key = read(path)
    public = key.key if kind == "participant" else key.public
    assert told == {"kind": kind, "file": str(path), "public_file": str(tmp_path / "a.pub"), "public": public}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = path.read_text().split('secret = "')[1][:40]
    text = run("keygen", kind, tmp_path / "b.key")
    assert (tmp_path / "b.pub").read_text().split('public = "')[1].split('"')[0] in text
    assert secret not in text + json.dumps(told)
    assert "never written over" in run("keygen", kind, path, code=1)


def test_a_folder_that_is_not_there_is_named_with_what_makes_it(tmp_path):
    said = run("keygen", "node", tmp_path / "sub" / "dir" / "x.key", code=1)
    assert f"there is no folder {tmp_path / 'sub' / 'dir'}" in said
    assert f"mkdir -p {tmp_path / 'sub' / 'dir'}" in said
    assert not list(tmp_path.iterdir())


def test_what_a_participant_signs_says_what_was_asked(keys):
    signer = ("--signer", keys / "participant.key", *SAYS)
    before_us = time.time_ns() // 1000
    run("keygen", "certificate", keys / "node.pub", "--node", "edge", *signer, "-o", keys / "n.cert")
    options = ("--expires", "1h", "--recipient", "core", "--epoch", 2, "--sequence", 7)
    told = json.loads(
        run("keygen", "revocation", keys / "client.pub", *signer, *options, "-o", keys / "r", "--json")
    )
    after_us = time.time_ns() // 1000
    public = {name: read_curve_key(keys / f"{name}.key").public for name in ("node", "client")}
    found = []
    for file in ("n.cert", "r"):
        signed, statement = opened(from_text((keys / file).read_text()))
        found.append(statement)
        assert signed.key == read_participant_key(keys / "participant.key").key
        assert verifier()(signed.key, CONTEXT + signed.statement, signed.signature)
    certificate, revocation = found
    assert isinstance(certificate, Certificate)
    assert (certificate.node, certificate.key, certificate.recipient) == ("edge", public["node"], "")
    assert (certificate.participant, certificate.federation, certificate.epoch) == ("alice", "fed", 1)
    assert before_us <= certificate.sequence <= after_us
    year_us = 365 * 86_400 * 1_000_000
    assert before_us <= certificate.expiry_us - year_us <= after_us
    assert isinstance(revocation, Revocation)
    assert (revocation.key, revocation.recipient) == (public["client"], "core")
    assert (revocation.epoch, revocation.sequence) == (2, 7)
    assert before_us <= revocation.expiry_us - 3_600_000_000 <= after_us
    assert told == {
        "kind": "revocation",
        "file": str(keys / "r"),
        "key": public["client"],
        "expiry_us": revocation.expiry_us,
    }


def test_what_cannot_be_signed(keys):
    signer = ("--signer", keys / "participant.key", *SAYS)
    out = ("-o", keys / "out")
    for arguments, says in [
        (("certificate", keys / "participant.pub", "--node", "e", *signer), "expected node or client"),
        (("certificate", keys / "none.pub", "--node", "e", *signer), "can't be read"),
        (("certificate", keys / "node.pub", "--node", "No Name", *signer), "E_MESSAGE|no statement"),
        (("revocation", keys / "node.pub", "--signer", keys / "node.key", *SAYS), "expected participant"),
        (("revocation", keys / "node.pub", *signer, "--expires", "soon"), "--expires"),
    ]:
        output = run("keygen", *arguments, *out, code=1)
        assert any(each in output for each in says.split("|")), output
        assert not (keys / "out").exists()
    (keys / "participant.key").chmod(0o644)
    assert "chmod 600" in run("keygen", "revocation", keys / "node.pub", *signer, *out, code=1)


def test_what_cannot_be_declared(keys):
    (keys / "text").write_text("hello")
    address = ("--node", f"ipc://{keys}/none")
    assert "Missing option" in run("declare", keys / "text", code=2)
    assert "server_key= is not" in run(
        "declare", keys / "text", *address, "--key", keys / "client.key", code=1
    )


def test_keys_are_for_nodes_alone(keys):
    given = ("--key", keys / "client.key", "--server-key", keys / "node.pub")
    assert "keys are for nodes" in run("top", "http://127.0.0.1:9", "--once", *given, code=1)
