"""YAML as plain values (those of JSON), and the line of each.

PyYAML reads it into nodes, which know where they stand; what these mean is decided here, as YAML 1.2 does for
JSON: ``no`` is text, and so is a date. No object is ever made of a tag. Aliases and merge keys are refused: a
few of them make a gigabyte of a kilobyte.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from medusa.errors import ContractError

if TYPE_CHECKING:
    import yaml

__all__ = ["YamlText", "shown"]

BYTES_MAX = 1 << 20
DEPTH_MAX = 32

_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]{1,3})?\Z")
_TAGS = tuple(
    f"tag:yaml.org,2002:{kind}"
    for kind in ("str", "int", "float", "bool", "null", "timestamp", "value", "merge", "seq", "map")
)
_WORDS: dict[str, bool | None] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

Path = tuple[str | int, ...]


class YamlText:
    """One reading of one text.

    Args:
        where: what to call it in messages.

    Attributes:
        root: its mapping.

    Raises:
        ContractError: no YAML, no mapping, or what is refused; says the line. Also where the package PyYAML
            isn't installed.
    """

    def __init__(self, text: str, where: str) -> None:
        self.where = where
        self._lines: dict[Path, int] = {}
        self._seen: set[int] = set()
        if len(text) > BYTES_MAX:
            raise ContractError(
                f"{where}: {len(text):,} characters, at most {BYTES_MAX:,}", code="contract.size"
            )
        node = self._composed(text)
        root = self._plain(node, (), 0) if node is not None else None
        if not isinstance(root, dict):
            raise ContractError(
                f"{where} line 1: expected fields, got {'nothing' if root is None else type(root).__name__}",
                hint="a data contract begins with: apiVersion: v3.2.0",
                code="contract.yaml",
            )
        self.root: dict[str, Any] = root

    def _composed(self, text: str) -> yaml.Node | None:
        try:
            import yaml
        except ImportError:
            raise ContractError(
                f"{self.where}: files of the Open Data Contract Standard need the package PyYAML",
                hint="pip install 'medusa-streams[contracts]'",
                code="contract.extra",
            ) from None
        try:
            node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
        except RecursionError:
            raise ContractError(f"{self.where}: more than {DEPTH_MAX} levels", code="contract.yaml") from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f" line {mark.line + 1}" if mark is not None else ""
            reason = getattr(error, "problem", None) or str(error).split("\n")[0]
            raise ContractError(f"{self.where}{line}: {reason}", code="contract.yaml") from None
        return node

    def _plain(self, node: yaml.Node, path: Path, depth: int) -> Any:
        import yaml

        line = node.start_mark.line + 1
        self._lines.setdefault(path, line)  # That of its key, where it has one.
        if depth > DEPTH_MAX:
            raise self._refused(line, f"more than {DEPTH_MAX} levels", "")
        if id(node) in self._seen:
            raise self._refused(line, "an alias (*name)", "write out what it stands for")
        if node.tag not in _TAGS:
            raise self._refused(line, f"the tag {node.tag[:80]!r}", "leave it out")
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(each, (*path, at), depth + 1) for at, each in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        assert isinstance(node, yaml.ScalarNode)
        return _scalar(node.value, plain=node.style is None)

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key.value, str) or key.value == "<<":
                raise self._refused(line, "a key that is no name", "write out what is merged")
            if key.value in found:
                raise self._refused(line, f"{key.value[:80]!r} a second time", "leave one out")
            self._lines[*path, key.value] = line
            found[key.value] = self._plain(value, (*path, key.value), depth + 1)
        return found

    def _refused(self, line: int, what: str, hint: str) -> ContractError:
        text = f"{self.where} line {line}: {what} can't stand in a contract"
        return ContractError(text, hint=hint, code="contract.yaml")

    def at(self, *path: str | int) -> str:
        """``x.odcs.yaml line 3``: where a field stands, or the innermost that is there and should hold it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self._lines:
                return f"{self.where} line {self._lines[path[:end]]}"
        return self.where

    def error(self, path: Path, text: str, *, hint: str = "", code: str = "contract.odcs") -> ContractError:
        """What to raise about a field."""
        return ContractError(f"{self.at(*path)}: {shown(path)}: {text}", hint=hint, code=code)


def shown(path: Path) -> str:
    """``schema[0].name``."""
    text = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in path)
    return text.removeprefix(".")


def _scalar(text: str, *, plain: bool) -> str | int | float | bool | None:
    if not plain:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) and math.isfinite(float(text)) else text
