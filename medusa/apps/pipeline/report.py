"""What a comparison of answers found, for readers and for scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["DIFFERS", "SAME", "Report", "SinkReport"]

SAME, DIFFERS = "same", "differs"


@dataclass(frozen=True, slots=True)
class SinkReport:
    """One sink: what Spark computed from the archive, beside what the stream answered.

    Attributes:
        expected: rows of the batch.
        answered: rows of the stream.
        different: pairs of rows of one key with other values; of sinks whose rows have a key.
        missing: other rows that the stream should have given.
        extra: other rows that it gave and should not have.
        near: pairs that are equal but for floats, within the tolerance.
        unsure: rows that are alike but for floats, and too many to say which have such a partner.
        moved: where all rows are equal, how many stand at another place of the stream; from ``order``.
        order: ``same``, ``differs``, or why the order of the rows wasn't compared.
        key: the columns by which rows are paired; empty: none are known.
        exactly: columns compared bit for bit (a NaN equals a NaN).
        within: columns compared within the tolerance.
        examples: rows that differ, as ``{"what": "missing" or "extra", column: value ...}``; those of a
            pair (``expected`` and ``answered``) stand one after the other.
    """

    sink: str
    expected: int
    answered: int
    different: int
    missing: int
    extra: int
    near: int
    key: tuple[str, ...]
    exactly: Mapping[str, str]
    within: Mapping[str, str]
    examples: tuple[Mapping[str, Any], ...] = ()
    moved: int = 0
    order: str = ""
    unsure: int = 0

    @property
    def equal(self) -> bool:
        return not (self.different or self.missing or self.extra or self.moved)

    def lines(self) -> list[str]:
        """For a terminal."""
        if self.equal:
            near = f", {self.near:,} of them but for floats within the tolerance" if self.near else ""
            placed = ", in the same order" if self.order == SAME else ""
            made = [f"{self.sink}: {self.expected:,} rows, all equal{near}{placed}"]
        elif self.moved:
            made = [
                f"{self.sink}: {self.expected:,} rows, the same, but {self.moved:,} stand elsewhere in the "
                "stream. Where partials were combined (a box split by partial) that is right: --any-order"
            ]
        else:
            made = [
                f"{self.sink}: {self.expected:,} rows expected, {self.answered:,} answered: "
                f"{self.missing:,} missing, {self.extra:,} extra, {self.different:,} different"
            ]
        if self.unsure:
            made.append(
                f"  {self.unsure:,} rows are alike but for floats: too many to say which have a partner"
            )
        made.append(f"  exactly: {_columns(self.exactly)}")
        if self.within:
            made.append(f"  within the tolerance: {_columns(self.within)}")
        for example in self.examples:
            shown = ", ".join(f"{name} {value}" for name, value in example.items() if name != "what")
            made.append(f"  {example['what']}: {shown}")
        return made


def _columns(types: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {type}" for name, type in types.items()) or "nothing"


@dataclass(frozen=True, slots=True)
class Report:
    """What ``md.spark.validate`` gives; ``str`` is the text of it.

    Attributes:
        floats: the tolerance; 0: floats are compared bit for bit.
        late, shed: rows of the archive that are marked so, by source; None: it doesn't say.
        left_out: sinks of the query for which no answers were given.
        doubts: why differences may come of what the archive lacks, and not of the stream's answers.
        may_shed: a run may shed rows of this query (``qos=``), and nobody said whether it did.
    """

    query: str
    floats: float
    late: Mapping[str, int | None]
    shed: Mapping[str, int | None]
    sinks: tuple[SinkReport, ...]
    left_out: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    may_shed: bool = False

    @property
    def equal(self) -> bool:
        """Whether the stream answered what the batch does."""
        return all(sink.equal for sink in self.sinks)

    @property
    def judged(self) -> bool:
        """Whether ``equal`` says something of the stream: it is true, or nothing is known to be lacking."""
        return self.equal or not self.doubts

    def __str__(self) -> str:
        made = [f"query {self.query}: {self._verdict()}", *self.doubts]
        for source in self.late:
            late, shed = self.late[source], self.shed[source]
            judged = (
                "late rows judged again by its slack" if late is None else f"{late:,} rows logged as late"
            )
            made.append(f"source {source}: {judged}, {shed or 0:,} as shed")
        for sink in self.sinks:
            made += sink.lines()
        if self.left_out:
            made.append(f"not compared, as there were no answers of them: {', '.join(self.left_out)}")
        if self.may_shed and not self.equal:
            made.append(
                "sinks have qos=, so a run with queue= may have shed rows: stats=run.stats() (--stats) tells"
            )
        return "\n".join(made)

    def _verdict(self) -> str:
        if self.equal:
            return "the stream's answers equal the batch's"
        if self.doubts:
            return "whether the stream's answers are right can't be told; they differ from the batch's"
        return "the stream's answers differ from the batch's"

    def to_json(self) -> dict[str, Any]:
        """As plain values; those of examples that JSON doesn't have are texts."""
        made = asdict(self) | {"equal": self.equal, "judged": self.judged}
        for told, sink in zip(made["sinks"], self.sinks, strict=True):
            told["equal"] = sink.equal
            told["examples"] = [
                {
                    name: value if isinstance(value, str | int | bool | None) else str(value)
                    for name, value in each.items()
                }
                for each in sink.examples
            ]
        return made
