"""Workloads at any size, for machines that make them in parts: rows in numbered parts, each made by itself.

``medusa pipeline prepare`` makes archives of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from medusa.apps.workloads import linear_road, netmon
from medusa.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from medusa.query.builder import Query

    Int64s = npt.NDArray[np.int64]

__all__ = ["COPIES_MAX", "TraceChunk", "LinearRoad", "Netmon", "shifted"]

COPIES_MAX = 10_000
CHUNK_ROWS = 1 << 16
IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
XWAYS_MAX = 400
"""Beyond it a spot on a road doesn't fit the int32 of the query."""
FIRST_NETWORK = 1 << 16
"""1.0.0.x: copies are never put into 0.x.x.x."""


@dataclass(frozen=True, slots=True)
class TraceChunk:
    """Some rows of a part.

    Attributes:
        rows: the columns of the source.
        seq: their positions in the whole workload; of one that isn't ordered, in the part.
        times_us: their times.
    """

    rows: pa.RecordBatch
    seq: Int64s
    times_us: Int64s


@dataclass(frozen=True)
class Netmon:
    """The shipped trace, some times over: copy 0 is the trace, others have addresses of their own.

    Copies keep times, ports and sizes, and addresses that share a network share one again: what the query
    answers of one copy it answers of all. A row's copies stand next to each other.

    Attributes:
        copies: 1 to ``COPIES_MAX``; up to 434 all addresses are possible ones, beyond that numbers in them
            go up to 999.
    """

    copies: int = 1

    name = "netmon"
    source = "flows"
    ordered = True
    period_us = netmon.WINDOW_US

    def __post_init__(self) -> None:
        if type(self.copies) is not int or not 1 <= self.copies <= COPIES_MAX:
            raise DataError(
                f"copies is from 1 to {COPIES_MAX:,}, got {self.copies!r:.40}", code="data.argument"
            )

    @property
    def made(self) -> dict[str, str | int | float | None]:
        return {"of": self.name, "copies": self.copies, "data": netmon.CITATION}

    def query(self) -> Query:
        return netmon.query()

    @property
    def parts(self) -> int:
        """One for each minute."""
        return len(_minutes()) - 1

    def part(self, number: int) -> Iterator[TraceChunk]:
        """The rows of a minute, in order."""
        import numpy as np
        import pyarrow as pa

        trace = _trace()
        low, high = _minutes()[number : number + 2]
        step = max(1, CHUNK_ROWS // self.copies)
        copies = np.arange(self.copies)
        for start in range(low, high, step):
            rows = np.repeat(np.arange(start, min(high, start + step)), self.copies)
            which = np.tile(copies, len(rows) // self.copies)
            columns: dict[str, Any] = {}
            for name in netmon.COLUMNS:
                if name in ("src", "dst"):
                    columns[name] = _addresses(name).shifted(rows, which)
                else:
                    columns[name] = trace[name].combine_chunks().take(pa.array(rows))
            batch = pa.record_batch(columns)
            yield TraceChunk(batch, rows * self.copies + which, batch.column(0).to_numpy())


@lru_cache(maxsize=1)
def _trace() -> pa.Table:
    return netmon.load_trace()


@lru_cache(maxsize=1)
def _minutes() -> tuple[int, ...]:
    """The first row of each minute, and the end."""
    import numpy as np

    minutes = _trace()["ts_us"].to_numpy() // netmon.WINDOW_US
    return (0, *(np.flatnonzero(np.diff(minutes)) + 1).tolist(), len(minutes))


@lru_cache(maxsize=1)
def _networks() -> Int64s:
    """All networks (the first three numbers of an IPv4 address) of the trace, as numbers, sorted."""
    import numpy as np

    texts = {text for name in ("src", "dst") for text in _trace()[name].unique().to_pylist()}
    return np.unique([_network(text) for text in texts if IPV4.fullmatch(text)])


def _network(address: str) -> int:
    a, b, c, _ = map(int, address.split("."))
    return (a << 16) | (b << 8) | c


def shifted(addresses: Sequence[str], copy: int) -> list[str]:
    """Addresses of the trace in a copy: in networks that no other copy has; their last number stays.

    What isn't IPv4 gets the copy's number as a zone: ``fe80::1%3``.
    """
    import numpy as np

    rows = np.arange(len(addresses))
    made = _Addresses(addresses).shifted(rows, np.full(len(rows), copy)).to_pylist()
    return [str(each) for each in made]


class _Addresses:
    """A column of addresses, shifted copy by copy."""

    def __init__(self, texts: Sequence[str]) -> None:
        import numpy as np
        import pyarrow as pa

        encoded = pa.array(texts, pa.string()).dictionary_encode()
        different = encoded.dictionary.to_pylist()
        networks = [_network(text) if IPV4.fullmatch(text) else -1 for text in different]
        self._codes = encoded.indices.to_numpy()
        self._texts = encoded.dictionary
        self._ends = pa.array([text.rpartition(".")[2] for text in different], pa.string())
        self._places = np.where(np.array(networks) < 0, -1, _networks().searchsorted(networks))

    def shifted(self, rows: Int64s, copies: Int64s) -> pa.Array:
        """The addresses of these rows, each for a copy."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        codes = self._codes[rows]
        texts, places = self._texts.take(pa.array(codes)), self._places[codes]
        networks = _written(_free(np.maximum(copies - 1, 0) * len(_networks()) + np.maximum(places, 0)))
        moved = pc.binary_join_element_wise(networks, self._ends.take(pa.array(codes)), ".")
        zoned = pc.binary_join_element_wise(texts, pa.array(copies).cast(pa.string()), "%")
        moved = pc.if_else(pa.array(places >= 0), moved, zoned)
        return pc.if_else(pa.array(copies == 0), texts, moved)


@lru_cache(maxsize=2)
def _addresses(name: str) -> _Addresses:
    return _Addresses(_trace()[name].to_pylist())


def _free(places: Int64s) -> Int64s:
    """The networks at these places of all that the trace doesn't use, from ``FIRST_NETWORK`` on."""
    networks = _networks()
    skipped = networks.searchsorted(FIRST_NETWORK)
    numbers = places + FIRST_NETWORK
    while True:
        more = places + FIRST_NETWORK + networks.searchsorted(numbers, side="right") - skipped
        if (more == numbers).all():
            return numbers
        numbers = more


def _written(numbers: Int64s) -> pa.Array:
    """Networks as text."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    beyond = numbers - (1 << 24)  # beyond all real ones numbers go up to 999
    real = beyond < 0
    a = np.where(real, numbers >> 16, 256 + beyond // 1_000_000)
    b = np.where(real, numbers >> 8 & 255, beyond // 1000 % 1000)
    c = np.where(real, numbers & 255, beyond % 1000)
    return pc.binary_join_element_wise(*(pa.array(each).cast(pa.string()) for each in (a, b, c)), ".")


@dataclass(frozen=True)
class LinearRoad:
    """Made traffic on some expressways, for the Linear Road query; an expressway is a part.

    Attributes:
        xways: expressways. Cars, and requests, have numbers of their own on each.
        cars: trips that begin on each.
        seconds: until when cars report.
    """

    xways: int = 1
    cars: int = 900
    seconds: int = 900
    seed: int = 0

    name = "linear_road"
    source = "input"
    ordered = False
    period_us = 60_000_000

    def __post_init__(self) -> None:
        for what, value, most in (
            ("xways", self.xways, XWAYS_MAX),
            ("cars", self.cars, 200_000),
            ("seconds", self.seconds, 1_000_000),
        ):
            if type(value) is not int or not 1 <= value <= most:
                raise DataError(f"{what} is from 1 to {most:,}, got {value!r:.40}", code="data.argument")
        if self.xways * self._requests_max >= 1 << 31:
            raise DataError("the numbers of requests don't fit int32: fewer xways, cars or seconds")

    @property
    def made(self) -> dict[str, str | int | float | None]:
        return {
            "of": self.name,
            **{name: getattr(self, name) for name in ("xways", "cars", "seconds", "seed")},
        }

    def query(self) -> Query:
        return linear_road.query()

    @property
    def parts(self) -> int:
        return self.xways

    @property
    def _requests_max(self) -> int:
        """A car reports every 30 s, and asks at most once with each report."""
        return self.cars * (self.seconds // 30 + 1)

    def part(self, number: int) -> Iterator[TraceChunk]:
        """The rows of an expressway, in order of time, then car."""
        import numpy as np
        import pyarrow as pa

        from medusa.apps.workloads.linear_road_traffic import Traffic, traffic

        table = traffic(Traffic(seconds=self.seconds, cars=self.cars), seed=self.seed + number)
        columns = {name: table[name].to_numpy().copy() for name in linear_road.FIELDS}
        columns["vid"] += number * self.cars
        columns["xway"][columns["type"] == 0] += number
        asks = columns["qid"] >= 0
        columns["qid"][asks] += number * self._requests_max
        batch = pa.record_batch({name: pa.array(each) for name, each in columns.items()})
        times_us = columns["time"].astype(np.int64) * 1_000_000
        yield TraceChunk(batch, np.arange(batch.num_rows), times_us)
