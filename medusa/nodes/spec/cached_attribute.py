"""A property that is worked out when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["lazily"]

T = TypeVar("T")


class lazily(Generic[T]):
    """``functools.cached_property`` without its lock.

    Until Python 3.12 that one has a lock for all objects of a class: while a thread works out a large one,
    each other thread waits. Here two threads may both work it out; what they find must be equal.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self._function = function
        self._name = function.__name__
        self.__doc__ = function.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> lazily[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> T | lazily[T]:
        if instance is None:
            return self
        # Where it is found there already, this isn't asked.
        found: T = vars(instance).setdefault(self._name, self._function(instance))
        return found
