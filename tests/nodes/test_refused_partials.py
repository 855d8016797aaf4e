"""Malformed partial results of one edge: refused and counted at the core, which goes on."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

import medusa as md
from medusa.engine.operators.windows import aggregate
from tests.nodes.test_brain import Run, in_order, query


def test_a_malformed_train_is_refused_and_counted(monkeypatch):
    """The first windows that an edge closes get negative counts; later ones are merged as ever."""
    honest = aggregate.NativeResults._train
    bad = []

    def broken(self, native):
        train = honest(self, native)
        at = train.batch.schema.get_field_index("n.n")
        if at >= 0 and not bad:
            bad.append(train.batch)
            batch = train.batch.set_column(
                at, train.batch.schema.field(at), pc.negate(train.batch.column(at))
            )
            return aggregate.Train(batch=batch, times=train.times)
        return train

    monkeypatch.setattr(aggregate.NativeResults, "_train", broken)
    run = Run(1)
    run.publish_over(3_000_000)
    assert run.federation.run(run.ended), run.federation.last()
    monkeypatch.undo()
    _, payload = run.federation.answer(run.reader, run.reader.status())
    inputs = json.loads(bytes(payload))["fragments"][0]["inputs"]
    assert sum(each["refused_rows"] for each in inputs) == len(bad[0])
    (report,) = (r for r in run.federation.nodes["core"].reports if r.what == "input refused")
    assert "row 0: state 'n' of aggregate 0 is negative" in dict(report.fields)["why"]
    got = pa.Table.from_batches(run.reader.rows["q.all"])
    want = md.collect(query(), flows=run.data)["all"]
    later = pc.field("window_end") > pc.max(bad[0]["window_end"])
    assert len(want.filter(later)) > 50
    assert in_order(got.filter(later)).equals(in_order(want.filter(later)))
    assert pc.sum(want["n"]).as_py() - pc.sum(got["n"]).as_py() == pc.sum(bad[0]["n.n"]).as_py()
