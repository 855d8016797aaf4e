"""The windowed word count: sentences of 140 bytes are split into words, which are counted in windows of 30 s.

    publisher ── a rows ── b kept, word0 ... word19, words ── m passed ──┬── counted ── out
                                                                         └── longer ─── held

A sentence is 20 words of six characters, with a blank behind each. Word number n of all that are published is
``w`` and n mod the dictionary's size, so which words a window has, and how often, is known beforehand. Boxes
at the primary, and the account, are those of ``bench.recovery.workload``: ``counted`` is a short window to
see by, ``longer`` counts each word.

Splitting is 20 selections put together in order, not a function of ours (``apply``): upstream backup takes no
functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import medusa as md
from bench.recovery import workload
from bench.recovery.methods import Method

__all__ = ["SENTENCE_BYTES", "WORDS", "numbered", "query", "rows_of"]

WORDS = 20
DICTIONARY_MAX = 100_000
SENTENCE_BYTES = 140
WORD_BYTES = SENTENCE_BYTES // WORDS

COLUMNS = {"ts": "timestamp", "n": "int64", "sentence": "utf8", "sent": "int64"}


def query(method: Method, shape: workload.Shape) -> md.Query:
    """It; ``shape`` is of words."""
    q = md.Query("q")
    kept = q.source("rows", COLUMNS, time="ts").filter("n >= 0", name="kept")
    split = [
        kept.select(
            n=f"n * {WORDS} + {place}",
            word=f"split_part(sentence, ' ', {place + 1})",
            sent="sent",
            name=f"word{place}",
        )
        for place in range(WORDS)
    ]
    words = md.sunion(*split, bucket="1ms", name="words")
    passed = words.filter("n >= 0", name="passed")
    counted = passed.window(f"{shape.window_ms}ms").aggregate(**workload.counts(), name="counted")
    q.sink("out", counted, **method.wish)
    longer = passed.window(f"{shape.held_ms}ms").group_by("word")
    q.sink(
        "held",
        longer.aggregate(rows=md.count(), first=md.min("n"), total=md.sum("n"), name="longer"),
        **method.wish,
    )
    return q


def rows_of(begin: int, end: int, sent_ns: int, *, rate: int, dictionary: int) -> pa.Table:
    """The sentences of these numbers, as published at this time.

    Args:
        rate: sentences a second.
        dictionary: different words, at most 100,000.
    """
    numbers = np.arange(begin, end)
    words = np.arange(begin * WORDS, end * WORDS) % dictionary
    text = np.ascontiguousarray(_dictionary(dictionary)[words])
    offsets = np.arange(end - begin + 1, dtype=np.int32) * SENTENCE_BYTES
    sentences = pa.Array.from_buffers(
        pa.utf8(), end - begin, [None, pa.py_buffer(offsets), pa.py_buffer(text)]
    )
    return pa.table(
        {
            "ts": pa.array(numbers * 1_000_000 // rate, pa.timestamp("us", "UTC")),
            "n": numbers,
            "sentence": sentences,
            "sent": np.full(end - begin, sent_ns),
        }
    )


@cache
def _dictionary(size: int) -> np.ndarray:
    """A row of seven bytes for each word."""
    if not 1 <= size <= DICTIONARY_MAX:
        raise ValueError(f"a dictionary has 1 to {DICTIONARY_MAX:,} words of six characters, not {size:,}")
    text = b"".join(b"w%05d " % number for number in range(size))
    return np.frombuffer(text, np.uint8).reshape(size, WORD_BYTES)


def numbered(came: Iterable[tuple[int, pa.RecordBatch]]) -> Sequence[tuple[int, pa.RecordBatch]]:
    """Rows of ``held`` with the number of each word as ``key``, as ``workload.held_of`` reads them."""
    return [
        (at_ns, batch.append_column("key", pc.utf8_slice_codeunits(batch["word"], 1).cast(pa.int64())))
        for at_ns, batch in came
    ]
