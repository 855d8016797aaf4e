"""Question: what does it cost to give each row the number of its key?

Data: 65,536 rows, 1,000 keys, as int64, as text, and as both. Peers: pyarrow's dictionary_encode,
numpy.unique, a C loop with open addressing that checks nothing.
Not shown: a table that outgrows the caches (W5 of the engine workloads is that).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bench import reference
from medusa import _native

COLUMNS = {"int64": (["key"], ["l"]), "text": (["text"], ["u"]), "both": (["key", "text"], ["l", "u"])}


@pytest.mark.parametrize("columns", COLUMNS)
def test_medusa(peer: Any, train: pa.RecordBatch, columns: str) -> None:
    names, types = COLUMNS[columns]
    rows = train.select(names)
    ids = pa.array(peer(lambda: _native.Keys(types).map(rows)))
    assert ids.equals(train["key"].dictionary_encode().indices)


@pytest.mark.parametrize("column", ["key", "text"])
def test_pyarrow(peer: Any, train: pa.RecordBatch, column: str) -> None:
    assert len(peer(pc.dictionary_encode, train[column]).dictionary) == 1_000


def test_numpy(peer: Any, train: pa.RecordBatch) -> None:
    keys = train["key"].to_numpy()
    assert len(peer(np.unique, keys, return_inverse=True)[0]) == 1_000


def test_c(peer: Any, train: pa.RecordBatch) -> None:
    keys = train["key"].to_numpy()
    ids = np.empty(len(keys), np.int32)
    assert peer(reference.call, "ref_keys", keys, len(keys), 4096, ids) == 1_000
