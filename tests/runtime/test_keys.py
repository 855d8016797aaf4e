"""Key files: who may read them, what they say when something is wrong, and what never shows."""

from __future__ import annotations

import copy
import os
import pickle
import re
import stat
import sys

import pytest
import zmq

from medusa.errors import ConfigError
from medusa.runtime.keys.key_files import (
    CurveKey,
    ParticipantKey,
    read_curve_key,
    read_participant_key,
    read_public,
    verifier,
    write_key,
)

SECRET = "CX^Xy7E+qt!AU1eZV3dHfz%-95M<2!WHASN5G:UM"
DASHED = "c=[P[MgUC&b9[Lt0FE8Xc^bog+b8/4{<xYR&Ty!F"
"""Its public key begins with ``-``."""

NEW = {"node": CurveKey.new, "client": CurveKey.new, "participant": ParticipantKey.new}


def read(kind, path):
    return read_participant_key(path) if kind == "participant" else read_curve_key(path, kind)


def secret_in(path) -> str:
    return re.search(r'secret = "(.+)"', path.read_text())[1]


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=NEW)
def made(request, tmp_path):
    """Kind, file and key."""
    path = tmp_path / "a.key"
    key = NEW[request.param]()
    write_key(path, request.param, key)
    return request.param, path, key


def test_what_was_written_is_read_and_only_the_owner_can(made):
    kind, path, key = made
    for name, mask in (("b.key", 0), ("c.key", 0o777)):
        old = os.umask(mask)
        try:
            write_key(path.with_name(name), kind, key)
        finally:
            os.umask(old)
    for each in (path, path.with_name("b.key"), path.with_name("c.key")):
        assert mode(each) == 0o600
        assert mode(each.with_suffix(".pub")) == 0o644
        again = read(kind, each)
        public = key.key if kind == "participant" else key.public
        assert (again.key if kind == "participant" else again.public) == public
        assert read_public(each) == read_public(each.with_suffix(".pub")) == public
    assert sorted(each.name for each in path.parent.iterdir()) == [
        f"{name}.{half}" for name in "abc" for half in ("key", "pub")
    ]


@pytest.mark.parametrize("open_to", [0o640, 0o604, 0o620, 0o602, 0o666, 0o610])
def test_a_secret_key_that_others_can_use_is_not_read(made, open_to):
    """Row 32 of the threat table."""
    kind, path, _ = made
    path.chmod(open_to)
    with pytest.raises(ConfigError, match=f"chmod 600 {re.escape(str(path))};") as caught:
        read(kind, path)
    assert caught.value.code == "config.key.mode"
    path.chmod(0o600)
    read(kind, path)


def test_the_fix_in_the_message_fits_a_shell(tmp_path):
    path = tmp_path / "my key.key"
    write_key(path, "node", CurveKey.new())
    path.chmod(0o644)
    with pytest.raises(ConfigError, match=f"chmod 600 '{re.escape(str(path))}'"):
        read_curve_key(path)


def test_a_secret_key_of_another_user_is_not_read(made, monkeypatch):
    kind, path, _ = made
    monkeypatch.setattr("medusa.runtime.keys.key_files.os.geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ConfigError, match=f"chown {os.getuid() + 1} ") as caught:
        read(kind, path)
    assert caught.value.code == "config.key.owner"


def test_a_secret_never_shows(made, capsys):
    kind, path, key = made
    secret = secret_in(path)
    shown = [repr(key), str(key), f"{key}", repr(vars(type(key)))]
    with pytest.raises(TypeError, match="can't be pickled") as caught:
        pickle.dumps(key)
    shown.append(str(caught.value))
    with pytest.raises(TypeError, match="copied"):
        copy.copy(key)
    public = path.with_suffix(".pub").read_text()
    for text in (
        public.replace("\n", f'\nsecret = "{secret}"\n'),
        path.read_text().replace(secret, secret[:-1]),
        path.read_text().replace(secret, secret + "x"),
        path.read_text().replace('kind = "', 'kind = "un'),
        path.read_text().replace('public = "', 'public = "0'),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            read(kind, path)
        shown += [str(caught.value), repr(caught.value)]
        assert caught.value.__cause__ is None
    assert not [text for text in shown if secret[:20] in text]
    assert secret[:20] not in public


def test_nothing_is_written_over(made):
    kind, path, _ = made
    before = path.read_text(), path.with_suffix(".pub").read_text()
    with pytest.raises(ConfigError, match="never written over"):
        write_key(path, kind, NEW[kind]())
    with pytest.raises(ConfigError, match="never written over"):  # the .pub is another's
        write_key(path.with_suffix(".secret"), kind, NEW[kind]())
    assert not path.with_suffix(".secret").exists()
    assert (path.read_text(), path.with_suffix(".pub").read_text()) == before
    with pytest.raises(ConfigError, match="public half"):
        write_key(path.with_suffix(".pub"), kind, NEW[kind]())


def test_a_folder_that_is_not_there_and_one_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in ("none", "file"):
        with pytest.raises(ConfigError, match="can't be written"):
            write_key(tmp_path / folder / "a.key", "node", CurveKey.new())


def test_a_crash_while_writing_leaves_no_half_key(tmp_path, monkeypatch):
    def fail(number):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("medusa.runtime.keys.key_files.os.fsync", fail)
    with pytest.raises(ConfigError, match="Input/output error"):
        write_key(tmp_path / "a.key", "node", CurveKey.new())
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("write", "says", "hint"),
    [
        ("", "is no key file", "medusa keygen"),
        ("x" * 5000, "is no key file", "medusa keygen"),
        ('kind = "node"\npublic = "short"\nsecret = "short"', "the key is damaged", "medusa keygen"),
        ('kind = "client"\npublic = "x"\nsecret = "x"', "key of a client, expected node", ""),
    ],
)
def test_files_that_hold_no_key(tmp_path, write, says, hint):
    path = tmp_path / "a.key"
    path.write_text(write)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=says) as caught:
        read_curve_key(path, "node")
    assert hint in caught.value.hint


def test_files_of_the_wrong_kind(made, tmp_path):
    kind, path, _ = made
    with pytest.raises(ConfigError, match="No such file"):
        read_curve_key(tmp_path / "none.key")
    with pytest.raises(ConfigError, match="is no file"):
        read_curve_key(tmp_path)
    public = path.with_suffix(".pub")
    public.chmod(0o600)
    with pytest.raises(ConfigError, match="public key, this needs the secret one") as caught:
        read(kind, public)
    assert str(path) in caught.value.hint


def test_halves_that_do_not_belong_together(made, tmp_path):
    kind, path, _ = made
    other = tmp_path / "b.key"
    write_key(other, kind, NEW[kind]())
    path.write_text(path.read_text().replace(secret_in(path), secret_in(other)))
    with pytest.raises(ConfigError, match="not that of the secret one"):
        read(kind, path)


def test_a_libzmq_without_curve_is_said(monkeypatch):
    monkeypatch.setattr(zmq, "has", lambda what: what != "curve")
    monkeypatch.setattr(zmq, "curve_keypair", None)
    for call in (CurveKey.new, lambda: CurveKey(SECRET)):
        with pytest.raises(ConfigError, match="without CURVE"):
            call()


def test_a_new_public_key_can_be_an_argument_of_a_command(monkeypatch):
    pairs = iter([(b"", DASHED.encode()), (b"", SECRET.encode())])
    assert zmq.curve_public(DASHED.encode()).startswith(b"-")
    monkeypatch.setattr(zmq, "curve_keypair", lambda: next(pairs))
    assert CurveKey.new().public == CurveKey(SECRET).public


def test_signatures():
    """Test vector 2 of RFC 8032, section 7.1; then what is not a signature."""
    key = ParticipantKey(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    assert key.key == "ed25519:3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    signature = bytes.fromhex(
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert key.sign(memoryview(b"\x72")) == signature
    verify = verifier()
    assert verify(key.key, b"\x72", signature)
    assert verify(key.key, memoryview(b"\x72"), signature)
    assert not verify(key.key, b"\x73", signature)
    assert not verify(ParticipantKey.new().key, b"\x72", signature)
    for damaged in (b"", signature[:-1], signature + b"\0", signature[::-1]):
        assert not verify(key.key, b"\x72", damaged)
    for no_key in ("", "ed25519:", key.key[:-1], key.key.upper(), "ed25519:" + "ff" * 32, "x" * 72):
        assert not verify(no_key, b"\x72", signature)


def test_without_the_package_cryptography_it_is_said(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for call in (verifier, ParticipantKey.new):
        with pytest.raises(ConfigError, match="need the package cryptography") as caught:
            call()
        assert "medusa-streams[federation]" in caught.value.hint
    assert CurveKey.new().public  # CURVE needs nothing more.


def test_a_derived_secret_tells_nothing_of_the_key():
    key = CurveKey.new()
    assert key.derived("a") == key.derived("a") != key.derived("b")
    assert key.derived("a") != CurveKey.new().derived("a")
    assert len(key.derived("a")) == 32
