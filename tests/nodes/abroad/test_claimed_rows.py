"""A host says that a fragment of ours has had more rows than there are: it is neither believed nor paid, and
no row is lost by it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from medusa.nodes.abroad.abroad_moves import Lost
from medusa.nodes.fragment.checkpoint_record import FragmentRecord, InputRecord
from medusa.nodes.fragment.inputs import FragmentInput
from tests.nodes.abroad.lending import HALF, Lending, counting

CLAIMED = 1_000_000
PAST_US = 4_000_000
"""A few checkpoints, and what nodes tell each other, are through by then."""


def lies(run: Lending, fragment: str, monkeypatch: pytest.MonkeyPatch, claim: Any) -> None:
    """From now on bob's node writes ``claim(record)`` into each checkpoint of this fragment."""
    honest = FragmentInput.record
    inputs = list(run.node("h").brain.fragments[fragment].inputs.values())

    def record(self: FragmentInput) -> InputRecord:
        made = honest(self)
        claimed: InputRecord = claim(made) if any(self is each for each in inputs) else made
        return claimed

    monkeypatch.setattr(FragmentInput, "record", record)


def more(record: InputRecord) -> InputRecord:
    return msgspec.structs.replace(record, next_seq=record.next_seq + CLAIMED)


def put_out(run: Lending) -> int:
    """Rows that alice has for it, by her own node."""
    [first] = [each for name, each in run.node("e").brain.fragments.items() if name.startswith("q/")]
    [output] = first.outputs.values()
    return output.sender.log.next_seq


@pytest.mark.parametrize("standby", [{"m": ["s"]}, {"m": ["e"]}], ids=["is told", "feeds it too"])
def test_rows_that_nobody_has_put_out_do_not_count_and_none_is_lost(
    standby: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Lending(counting(), standby=standby)
    fragment = run.deploy()
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    run.lend(fragment)
    lies(run, fragment, monkeypatch, more)
    run.publish(HALF)
    run.fed.run(for_us=PAST_US)
    for name in (each for nodes in standby.values() for each in ("m", *nodes)):
        progress = run.moves(name).progress(fragment)
        assert progress is not None, "what was held before is held still"
        assert 0 < progress[0] <= put_out(run)
        said = [each for each in run.node(name).reports if each.what == "checkpoint refused"]
        assert len(said) == 1, "and that is said, once"
        assert f"ends at {put_out(run)}" in str(said[0].fields["why"])
    run.node("h").crash()
    run.until_at(fragment, "m")
    run.check()
    assert isinstance(run.events["m"][-1], Lost)
    assert 0 < run.events["m"][-1].rows_in <= put_out(run)


def test_what_is_right_is_held_soon_though_its_rows_are_told_apart() -> None:
    run = Lending(counting())
    fragment = run.deploy()
    run.publish(0, HALF)
    run.lend(fragment)
    run.publish(HALF)
    run.check()
    for name in "ms":
        run.until(
            lambda name=name: (run.moves(name).progress(fragment) or (0,))[0] == put_out(run), "all rows"
        )  # type: ignore[misc]
        assert not [each for each in run.node(name).reports if each.what == "checkpoint refused"]


@pytest.mark.parametrize("source", ["the same", "other"], ids=["twice", "none of it"])
def test_inputs_that_a_fragment_does_not_have_do_not_count(
    source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One input for each of its sources: a sum over more would be a bill for more."""
    run = Lending(counting())
    fragment = run.deploy()
    run.publish(0, HALF)
    run.fed.run(for_us=30_000)
    run.lend(fragment)
    there = run.node("h").brain.fragments[fragment]
    to_bytes = FragmentRecord.to_bytes

    def longer(self: FragmentRecord) -> bytes:
        if self.fragment != fragment or there.frozen:
            return to_bytes(self)
        [own] = self.inputs
        again = msgspec.structs.replace(own, source=own.source if source == "the same" else source, peer="x")
        return to_bytes(msgspec.structs.replace(self, inputs=(own, again)))

    monkeypatch.setattr(FragmentRecord, "to_bytes", longer)
    run.publish(HALF)
    run.fed.run(for_us=PAST_US)
    for name in "ms":
        progress = run.moves(name).progress(fragment)
        assert progress is None or 0 < progress[0] <= put_out(run)
    monkeypatch.undo()
    run.check()
