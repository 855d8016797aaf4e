"""What is told of left-out rows to and from another participant: a sum, by the name of the stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import medusa as md
from medusa.nodes.fragment.thinning import Thinning
from medusa.nodes.placement.placement import cut
from medusa.query.graph import check_graph
from medusa.wire import limits

SCHEMA = {"k": "int64"}


@dataclass
class Receiver:
    thinned: dict[str, int]


@dataclass
class Input:
    source: str
    peer: str
    stream: str
    receiver: Receiver


@dataclass
class Sender:
    told: dict[str, int] = field(default_factory=dict)

    def thins(self, thinned: dict[str, int]) -> None:
        self.told = dict(thinned)


@dataclass
class Output:
    stream: str
    is_foreign: bool
    sender: Sender = field(default_factory=Sender)


def thinning(theirs: dict[str, int], ours: dict[str, int], outputs: dict[str, Output]) -> Thinning:
    """Of a fragment that reads a stream of a partner and one of ours, and has left out 5 rows itself."""
    q = md.Query("roads")
    both = q.source("theirs", SCHEMA, time=None).union(q.source("ours", SCHEMA, time=None), name="both")
    q.sink("out", both)
    [spec] = cut(q.graph, {"n": [box.id for box in q.graph.boxes]}).fragments
    inputs: Any = {
        ("theirs", "bob"): Input("theirs", "bob", "cars.out", Receiver(theirs)),
        ("ours", "n"): Input("ours", "n", "roads/up.out", Receiver(ours)),
    }
    made = Thinning(
        spec,
        check_graph(spec.graph),
        inputs,
        outputs,  # type: ignore[arg-type]
        {"ours": {"roads/both.ours": 5}},
        is_foreign=lambda node: node == "bob",
    )
    made.tell()
    return made


def test_no_partner_speaks_for_our_places() -> None:
    output = Output("roads.out", is_foreign=False)
    lies = {"roads/both.ours": 10**15, "roads/up.cars": 10**15}
    thinning(lies, {"roads/up.cars": 7}, {"out": output})
    assert output.sender.told == {"cars.out": 2 * 10**15, "roads/both.ours": 5, "roads/up.cars": 7}


def test_a_partner_that_reads_is_told_a_sum_and_no_names() -> None:
    """Its stream is a guest's, beside ours."""
    outputs = {"out": Output("roads.out", is_foreign=False), "out.1": Output("sold", is_foreign=True)}
    thinning({"cars/box.cars": 2}, {"roads/up.cars": 7}, outputs)
    assert outputs["out.1"].sender.told == {"sold": 14}
    assert outputs["out"].sender.told == {"cars.out": 2, "roads/both.ours": 5, "roads/up.cars": 7}


@pytest.mark.parametrize("places", [1, limits.THINNED_MAX])
def test_a_sum_is_a_count(places: int) -> None:
    outputs = {"out": Output("roads.out", is_foreign=False), "out.1": Output("sold", is_foreign=True)}
    thinning({f"cars/{n}.cars": limits.SEQ_MAX for n in range(places)}, {}, outputs)
    assert outputs["out"].sender.told["cars.out"] == limits.SEQ_MAX
    assert outputs["out.1"].sender.told == {"sold": limits.SEQ_MAX}
