"""How SQL asks for windows: a row of it stands with the class of each kind that has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from medusa.query.stream.stream import Stream

__all__ = ["WindowFunction", "WindowSpec"]


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A window as the text asks for it: equal ones have the same method and arguments.

    Attributes:
        method: of a stream, by name, which cuts it into these windows.
        given: its arguments.
        length_us: of every window; None: they differ.
    """

    method: str
    given: tuple[int, ...]
    length_us: int | None

    def of(self, stream: Stream) -> Any:
        """The stream cut into these windows."""
        return getattr(stream, self.method)(*self.given)


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """What a window function takes and means.

    Attributes:
        name: in lower case.
        form: a call as one writes it, which errors show.
        lengths: how many lengths it takes beside the time column.
        spec: the window that lengths in microseconds, in the order of the text, ask for.
            Raises QueryError, without a place in the text, where they contradict each other.
        in_from: it also stands in FROM, as a table function, and has ``..._START`` and ``..._END``.
        time_last: the time column comes after the lengths.
    """

    name: str
    form: str
    lengths: int
    spec: Callable[[Sequence[int]], WindowSpec]
    in_from: bool = True
    time_last: bool = False
