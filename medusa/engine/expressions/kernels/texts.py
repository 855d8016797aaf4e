"""Functions on text. Patterns and positions are constants, checked when the query was built."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from medusa.engine.expressions.kernels.kernel import (
    Faulty,
    Kernel,
    KernelSite,
    Maker,
    Value,
    as_array,
    call,
    function,
    raw,
    strike,
    valid_rows,
)
from medusa.query.expressions.patterns import like_parts, whole_group

__all__ = ["TEXTS", "TEXT_BYTES_MAX"]

TEXT_BYTES_MAX = 1 << 20
"""The longest text that a function makes of shorter ones."""

_cast = function("cast")
_coalesce = function("coalesce")
_if_else = function("if_else")
_is_null = function("is_null")
_take = function("take")
_TO_INT = pc.CastOptions.unsafe(pa.int64())
_binary_length = function("binary_length")
_EMPTY = pa.scalar("")
_ZERO = pa.scalar(0, pa.int32())
_NO_TEXT = pa.scalar(None, pa.string())


def _search(name: str, pattern: str) -> Kernel:
    """A kernel that looks for a constant in its first argument."""
    options = pc.MatchSubstringOptions(pattern)
    run = function(name)
    return lambda rows, args: run([as_array(args[0], rows)], options)


_LIKE = {
    "prefix": "starts_with",
    "suffix": "ends_with",
    "infix": "match_substring",
    "regex": "match_substring_regex",
}


def _like(site: KernelSite) -> Kernel:
    kind, pattern = like_parts(site.text(1))
    if kind == "equal":
        equal = function("equal")
        wanted = pa.scalar(pattern)
        return lambda rows, args: equal([as_array(args[0], rows), wanted])
    return _search(_LIKE[kind], pattern)


Lengths: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
"""Bytes; in floats, so that no estimate overflows."""


def _lengths(text: pa.Array) -> Lengths:
    """Bytes of each text; 0 for null."""
    return raw(_coalesce([_binary_length([text]), _ZERO])).astype(np.float64)


def _limited(kernel: Kernel, bounds: Callable[[list[pa.Array]], Lengths]) -> Kernel:
    """A kernel whose texts may grow: a row where they would pass the limit fails.

    Without it a few nested replacements make of one letter more than any machine holds.
    """

    def run(rows: int, args: Sequence[Value]) -> pa.Array | Faulty:
        arrays = [as_array(arg, rows) for arg in args]
        long = bounds(arrays) > TEXT_BYTES_MAX
        if not long.any():
            return kernel(rows, args)
        for array in arrays:
            long &= valid_rows(array)
        return Faulty(
            kernel(rows, [strike(arrays[0], long), *arrays[1:]]),
            long,
            lambda row: f"a text of more than {TEXT_BYTES_MAX:,} bytes",
        )

    return run


def _concat(site: KernelSite) -> Kernel:
    run = function("binary_join_element_wise")
    options = pc.JoinOptions(null_handling="emit_null")

    def bounds(arrays: list[pa.Array]) -> Lengths:
        total = np.zeros(len(arrays[0]))
        for array in arrays:
            total += _lengths(array)
        return total

    return _limited(lambda rows, args: as_array(run([*args, _EMPTY], options), rows), bounds)


def _length(site: KernelSite) -> Kernel:
    run = function("utf8_length")
    return lambda rows, args: _cast([run(args)], _TO_INT)


def _substr(site: KernelSite) -> Kernel:
    start = site.integer(1)
    first = start - 1 if start > 0 else start
    stop = None
    if len(site.types) == 3:
        stop = first + site.integer(2)
        if first < 0 <= stop:
            stop = None
        if site.integer(2) == 0:
            stop = first
    return _call_first("utf8_slice_codeunits", pc.SliceOptions(first, stop, 1))


def _call_first(name: str, options: object) -> Kernel:
    """A kernel of the first argument; the others are in the options."""
    run = function(name)
    return lambda rows, args: run([as_array(args[0], rows)], options)


def _trim(name: str) -> Maker:
    return lambda site: _call_first(name, pc.TrimOptions(site.text(1) if len(site.types) == 2 else " "))


def _replace(site: KernelSite) -> Kernel:
    old, new = site.text(1), site.text(2)
    if not old:
        return lambda rows, args: as_array(args[0], rows)
    grows = len(new.encode()) - len(old.encode())
    kernel = _call_first("replace_substring", pc.ReplaceSubstringOptions(old, new))
    return _growing(kernel, "count_substring", old, lambda lengths: np.full_like(lengths, grows))


def _regexp_replace(site: KernelSite) -> Kernel:
    pattern, new = site.text(1), site.text(2)
    count = -1 if len(site.types) == 4 else 1
    options = pc.ReplaceSubstringOptions(pattern, new, max_replacements=count)
    kernel = _call_first("replace_substring_regex", options)
    groups = new.count("\\")
    size = len(new.encode())

    def grows(lengths: Lengths) -> Lengths:
        grown: Lengths = size + groups * lengths
        return grown

    return _growing(kernel, "count_substring_regex", pattern, grows)


def _growing(kernel: Kernel, count: str, pattern: str, grows: Callable[[Lengths], Lengths]) -> Kernel:
    """The limit for a replacement that adds at most ``grows`` bytes at each match."""
    find = function(count)
    options = pc.MatchSubstringOptions(pattern)

    def bounds(arrays: list[pa.Array]) -> Lengths:
        lengths = _lengths(arrays[0])
        most = np.maximum(grows(lengths), 0)
        # A match for each byte, and one at the end, is the most there can be.
        if not len(lengths) or (lengths + (lengths + 1) * most).max() <= TEXT_BYTES_MAX:
            return lengths
        matches = raw(_coalesce([find([arrays[0]], options), _ZERO]))
        longest: Lengths = lengths + matches * most
        return longest

    return _limited(kernel, bounds)


def _regexp_extract(site: KernelSite) -> Kernel:
    group = site.integer(2) if len(site.types) == 3 else 0
    pattern, _ = whole_group(site.text(1))
    run = function("extract_regex")
    options = pc.ExtractRegexOptions(pattern)

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array:
        text = as_array(args[0], rows)
        found = _coalesce([run([text], options).flatten()[group], _EMPTY])
        return _if_else([_is_null([text]), _NO_TEXT, found]) if text.null_count else found

    return kernel


def _split_part(site: KernelSite) -> Kernel:
    part = site.integer(2)
    run = function("split_pattern")
    options = pc.SplitPatternOptions(site.text(1))

    def kernel(rows: int, args: Sequence[Value]) -> pa.Array:
        text = as_array(args[0], rows)
        lists = run([text], options)
        bounds = np.asarray(lists.offsets)
        chosen = bounds[:-1] + part - 1 if part > 0 else bounds[1:] + part
        there = (chosen >= bounds[:-1]) & (chosen < bounds[1:]) & valid_rows(text)
        found = _coalesce([_take([lists.values, pa.array(chosen, mask=~there)]), _EMPTY])
        return _if_else([_is_null([text]), _NO_TEXT, found]) if text.null_count else found

    return kernel


TEXTS: dict[str, Maker] = {
    "like": _like,
    "concat": _concat,
    "lower": lambda site: call("utf8_lower"),
    "upper": lambda site: call("utf8_upper"),
    "length": _length,
    "substr": _substr,
    "trim": _trim("utf8_trim"),
    "ltrim": _trim("utf8_ltrim"),
    "rtrim": _trim("utf8_rtrim"),
    "replace": _replace,
    "starts_with": lambda site: _search("starts_with", site.text(1)),
    "ends_with": lambda site: _search("ends_with", site.text(1)),
    "contains": lambda site: _search("match_substring", site.text(1)),
    "split_part": _split_part,
    "regexp_matches": lambda site: _search("match_substring_regex", site.text(1)),
    "regexp_replace": _regexp_replace,
    "regexp_extract": _regexp_extract,
}
"""Makers of kernels by operation."""
