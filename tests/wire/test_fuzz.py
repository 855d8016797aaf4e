"""Thousands of mutated frames, in a process of their own (reliability B4, D 9 and 11)."""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from medusa.errors import RemoteProtocolError
from medusa.wire.codec import TrainCodec
from tests.wire import mutants


def run(seed, count, *options):
    done = subprocess.run(
        [sys.executable, "-m", "tests.wire.mutants", str(seed), str(count), *options],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ, PYTHONFAULTHANDLER="1"),
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    counts = ast.literal_eval(done.stdout)
    assert sum(counts.values()) == count
    assert set(counts) <= {"E_FRAME", "E_ARROW", "E_LIMIT", "E_SCHEMA", "E_BOUNDARY", "taken"}
    # The mutations reach every check, and some are harmless: else the fuzzer is blind.
    assert {"E_ARROW", "E_FRAME", "taken"} <= set(counts), counts
    assert "E_LIMIT" in counts or count < 1000, counts
    return counts


def test_mutated_frames_never_crash_and_only_the_peer_is_blamed():
    run(0, 2000)


def test_the_address_of_a_frame_changes_nothing():
    run(500_000, 100, "every")


@pytest.mark.full
@pytest.mark.issue(2)
def test_many_more_mutated_frames():
    run(1_000_000, 30_000)


@pytest.mark.full
@pytest.mark.issue(5)
def test_ten_thousand_mutated_frames_at_every_address_offset():
    run(5_000_000, 10_000, "every")


def test_the_fuzzer_notices_data_that_becomes_code():
    program = "import sys; from tests.wire import mutants; sys.addaudithook(mutants.nothing_runs); "
    for line in ("compile('1', 'x', 'eval')", "__import__('wave')", "open('/dev/null')"):
        done = subprocess.run(
            [sys.executable, "-c", program + line], capture_output=True, text=True, check=False
        )
        assert "AssertionError" in done.stderr, line


def test_the_fuzzer_notices_a_decoder_that_checks_nothing(monkeypatch):
    """A mistake planted where it matters: rows are taken as they come."""
    import random

    import pyarrow as pa

    def careless(self, message, payload, peer):
        return pa.ipc.read_record_batch(pa.ipc.read_message(payload), self._wire[message.late])

    monkeypatch.setattr(TrainCodec, "_read", careless)
    # Flipped lengths only: wilder mutations could end the test run itself.
    wrong = 0
    for seed in range(60):
        rng = random.Random(seed)
        header, payload = mutants.original(rng)
        cut = payload[: rng.randrange(len(payload))]
        try:
            mutants.CODEC.decode(mutants.decode_frame([header, cut])[0], cut)
        except RemoteProtocolError:
            continue
        except Exception:
            wrong += 1
    assert wrong > 50
