"""Where rows leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from medusa.errors import QueryError
from medusa.query.boxes.base import BoxData
from medusa.query.delay import check_delay, delay_line
from medusa.query.delay_policies import PROCESS, check_policies
from medusa.query.qos import EXAMPLES, QoS, qos_lines
from medusa.query.recovery import check_recovery, recovery_line
from medusa.query.shape import StreamShape, types_of
from medusa.query.structs import Input
from medusa.query.suggest import did_you_mean
from medusa.query.types import is_numeric

__all__ = ["Sink"]


class Sink(BoxData, frozen=True, tag_field="kind", tag="sink", kw_only=True, omit_defaults=True):
    """Where rows leave, under this name.

    Attributes:
        qos: what they are worth; None: nobody said, and nothing of them is ever shed.
        recovery: what becomes of them when a machine on their way is lost for good: ``precise``: none is
            lost or repeated. None: nobody said, and they wait until it is back.
        method: how that is brought about; None: as this release chooses.
        delay_us: X: by how much a failure may hold up a result before a tentative one stands in for it. None:
            nobody said, and results wait until the failure is over.
        delay_failure, delay_stabilization: what becomes of new rows while an input is missing, and while
            corrections come (``delay_policies``); None: they are processed at once.
    """

    keeps_state = False
    last_result = 0, 0, 0
    when_thinned = "rows"
    stays_whole = "a sink numbers its rows"

    inputs: tuple[Input, ...]
    qos: QoS | None = None
    recovery: str | None = None
    method: str | None = None
    delay_us: int | None = None
    delay_failure: str | None = None
    delay_stabilization: str | None = None

    def shape(self, inputs: Sequence[StreamShape], label: str, port: str) -> StreamShape:
        row = inputs[0]
        qos: object = self.qos  # which may be anything where a program made the box
        if qos is not None and not isinstance(qos, QoS):
            raise QueryError(
                f"{label}: qos: expected an md.QoS, got {type(qos).__name__}",
                hint=f"qos=md.QoS({EXAMPLES['latency']})",
                code="query.qos",
            )
        if qos is not None and qos.value is not None:
            _check_column(qos.value[0], types_of(row.schema), f"{label}: qos: value")
        check_recovery(self.recovery, self.method, label)
        check_delay(self.delay_us, row.timed, label)
        if self.delay_us is None and (self.delay_failure, self.delay_stabilization) != (None, None):
            raise QueryError(
                f"{label}: delay: policies for new rows, and no bound",
                hint='delay_us says by how much a failure may hold it up, as delay=md.Delay("2s") does',
                code="query.delay",
            )
        check_policies(*self.policies, f"{label}: delay")
        return replace(row, box=label)

    @property
    def policies(self) -> tuple[str, str]:
        """What becomes of new rows while an input is missing, and while corrections come."""
        failure, stabilization = self.delay_failure, self.delay_stabilization
        return (
            PROCESS if failure is None else failure,
            PROCESS if stabilization is None else stabilization,
        )

    def describe(self) -> str:
        return "; ".join(self.brief())

    def brief(self) -> tuple[str, ...]:
        more = (recovery_line(self.recovery, self.method), delay_line(self.delay_us, *self.policies))
        return (*qos_lines(self.qos), *filter(None, more))

    def reads_time(self, below: bool) -> bool:
        return below


def _check_column(column: str, types: dict[str, str], label: str) -> None:
    if column not in types:
        raise QueryError(
            f"{label}: there is no column {column[:80]!r}",
            hint=did_you_mean(column, types),
            code="query.column",
        )
    if not is_numeric(types[column]):
        raise QueryError(
            f"{label}: expected a column of numbers, {column!r} is {types[column]}", code="query.qos"
        )
