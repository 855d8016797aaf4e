"""What a box is, as far as its state depends on it: kind, parameters and the columns that come in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Any

import msgspec

from medusa.decoders import converter
from medusa.query.boxes import Box, Lookup, Table
from medusa.query.expressions.expression import Expression
from medusa.query.expressions.show import show
from medusa.query.graph import CheckedGraph
from medusa.query.ids import kind_of

__all__ = ["differences", "signatures"]

_expression = converter(Expression)

LOOKUP = kind_of(Lookup)
SHOWN_MAX = 60
EXPRESSION_MAX = 10_000

NO_STATE = ("id", "inputs", "qos", "recovery", "method", "delay_us", "keep_us", "keep_bytes", "shed")


def signatures(checked: CheckedGraph) -> dict[str, dict[str, Any]]:
    """Of each box, by id: ``kind``, ``parameters`` and ``inputs``, as JSON values.

    Parameters that have their default are left out, so a parameter that a later version adds changes
    nothing. Where a box reads its rows from isn't part of it; their columns are. Nor is the
    quality of service of a sink, how it is recovered, by how much it may be late, what may be left out
    behind a source, or how much a connection point keeps: what they hold is the same.
    """
    boxes = checked.boxes
    made: dict[str, dict[str, Any]] = {}
    for box in checked.graph.boxes:
        inputs = []
        for number, arc in enumerate(box.inputs):
            shape = checked.shapes[arc]
            entry: dict[str, Any] = {"columns": {field.name: field.type for field in shape.schema}}
            entry["timed"] = shape.timed
            if isinstance(box, Lookup) and number:  # It has a copy of its table, and may say what that is.
                origin = box.table or boxes[arc.box]
                if isinstance(origin, Table):
                    entry["table"] = {**_parameters(origin), "updates": shape.timed}
            inputs.append(entry)
        made[box.id] = {"kind": kind_of(box), "parameters": _parameters(box), "inputs": inputs}
    return made


def _parameters(box: Box) -> dict[str, Any]:
    plain = _plain(box)
    if isinstance(box, Lookup):
        plain.pop("table", None)
    return {name: value for name, value in plain.items() if name not in NO_STATE}


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        config = type(value).__struct_config__
        made = {} if config.tag is None else {str(config.tag_field): config.tag}
        for field in _fields(type(value)):
            part = getattr(value, field.name)
            if (
                field.default is msgspec.NODEFAULT
                or type(part) is not type(field.default)
                or part != field.default
            ):
                made[field.encode_name] = _plain(part)
        return made
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return msgspec.to_builtins(value)


# Evaluating the annotations of a class takes a millisecond, and every checkpoint asks.
_fields = lru_cache(maxsize=None)(msgspec.structs.fields)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between two signatures, as people say it: ``size_us: 600000000 -> 300000000``."""
    if before["kind"] != now["kind"]:
        return [f"it was a {before['kind']} and is a {now['kind']}"]
    found = _changed("", before["parameters"], now["parameters"])
    if len(before["inputs"]) != len(now["inputs"]):
        return [*found, f"it had {len(before['inputs'])} inputs and has {len(now['inputs'])}"]
    for number, (old, new) in enumerate(zip(before["inputs"], now["inputs"], strict=True)):
        head = f"input {number}, " if len(now["inputs"]) > 1 else "input, "
        found += _changed(f"{head}column ", old["columns"], new["columns"])
        if not found and list(old["columns"]) != list(new["columns"]):
            found.append(f"{head}order of the columns")
        if now["kind"] == LOOKUP:  # Earlier releases noted it also of who reads what updates give.
            found += _changed(f"{head}table ", old.get("table", {}), new.get("table", {}))
        if old["timed"] != new["timed"]:
            found.append(f"{head}it has a time now" if new["timed"] else f"{head}it has no time any more")
    return found


def _changed(head: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [
        f"{head}{name}: {' -> '.join(_shown(old, new, name))}"
        for name in [*old, *(name for name in new if name not in old)]
        if old.get(name) != new.get(name)
    ]


def _shown(old: Mapping[str, Any], new: Mapping[str, Any], name: str) -> tuple[str, str]:
    one, other = old.get(name), new.get(name)
    if isinstance(one, list) and isinstance(other, list):
        # Of a schema, or of aggregates, those that differ; of the same in another order all.
        gone, come = [each for each in one if each not in other], [each for each in other if each not in one]
        if gone or come:
            one, other = gone, come
    texts = [_text(one) if name in old else "not set", _text(other) if name in new else "not set"]
    if texts[0] == texts[1]:  # deep expressions are shown with dots
        texts = [msgspec.json.encode(each).decode() for each in (one, other)]
    return _cut(*texts)


def _text(value: Any) -> str:
    """A JSON value as people write it: expressions as SQL, columns as ``name type``."""
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    if isinstance(value, dict) and "node" in value:
        return show(_expression(value), longest=EXPRESSION_MAX)
    if isinstance(value, dict) and value.keys() == {"name", "type"}:
        return f"{value['name']} {value['type']}"
    if isinstance(value, dict) and value.keys() == {"name", "expression"}:
        text = _text(value["expression"])
        return text if text == value["name"] else f"{value['name']} = {text}"
    if isinstance(value, dict) and {"name", "function"} <= value.keys():
        rest = (_text(each) for name, each in value.items() if name not in ("name", "function"))
        return f"{value['name']} = {value['function']}({', '.join(rest)})"
    return msgspec.json.encode(value).decode()


def _cut(one: str, other: str) -> tuple[str, str]:
    """Long texts from shortly before the place where they part."""
    begin = 0
    if max(len(one), len(other)) > SHOWN_MAX:
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        begin = max(0, same - SHOWN_MAX // 3)
    parts = (f"{'...' if begin else ''}{text[begin:]}" for text in (one, other))
    first, second = (text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..." for text in parts)
    return first, second
