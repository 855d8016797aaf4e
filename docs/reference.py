"""The API reference as Markdown: public names with signatures and docstrings, and the codes of errors."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

import medusa
from medusa import errors
from medusa.engine.query_change import Change
from medusa.query.expressions.column import Expr
from medusa.query.published_stream import PublishedStream
from medusa.query.stream.keyed_table import KeyedTable
from medusa.query.stream.time_windows import GroupedStream, WindowedStream
from medusa.query.stream.window_steps import KeyedStream, KindStream, SessionStream
from medusa.runtime.client.federation import Federation
from medusa.runtime.client.followed_table import FollowedTable
from medusa.runtime.client.named_publisher import NamedPublisher
from medusa.runtime.client.subscription import Subscription
from medusa.runtime.embedded.collected import Collected
from medusa.runtime.embedded.views import HistoryInfo

AGGREGATES = (
    *("count", "sum", "avg", "min", "max", "first", "last", "variance", "stddev", "count_distinct"),
    *("approx_count_distinct", "quantile", "median", "approx_quantile", "user"),
)
PACKAGE = Path(medusa.__file__).resolve().parent

# Section -> (what it is about, what it has). A class comes with its methods, inherited ones too.
SECTIONS: dict[str, tuple[str, tuple[object, ...]]] = {
    "Queries": (
        "Writing a query. See queries.md, qos.md and dpc.md.",
        (medusa.Query, medusa.Stream, medusa.sunion, KeyedTable, medusa.QoS, medusa.Delay),
    ),
    "Windows": (
        "What `window`, `session` and `group_by` give. See operators-windows.md.",
        (WindowedStream, GroupedStream, SessionStream, KeyedStream, KindStream, medusa.lag),
    ),
    "Expressions": (
        "See expressions.md.",
        (medusa.col, medusa.lit, medusa.time, medusa.when, Expr),
    ),
    "Aggregates": (
        "See aggregates.md.",
        tuple(getattr(medusa, name) for name in AGGREGATES),
    ),
    "SQL": ("See sql.md.", (medusa.sql, medusa.source)),
    "Functions of yours": ("See operators-user.md.", (medusa.register, medusa.process)),
    "Running": (
        "See guide-running.md, history.md and changing.md.",
        (
            *(medusa.collect, medusa.start, medusa.restore, medusa.replay, medusa.read_history),
            *(medusa.Run, medusa.AttachedRun, Change, HistoryInfo, Collected),
        ),
    ),
    "Elements": ("What `run.take(sink, changes=True)` gives.", (medusa.Train, medusa.Kind, medusa.Boundary)),
    "Nodes": (
        "See nodes.md and scaling.md.",
        (
            medusa.node,
            medusa.Node,
            medusa.connect,
            medusa.balance,
            medusa.ScalePolicy,
            medusa.ScaleRules,
            medusa.Resize,
            medusa.NodeProvider,
            medusa.ProvidedNode,
            Federation,
            PublishedStream,
            Subscription,
            FollowedTable,
            NamedPublisher,
        ),
    ),
    "Testing": (
        "`md.testing`; see testing.md.",
        tuple(getattr(medusa.testing, n) for n in medusa.testing.__all__),
    ),
    "Errors and warnings": (
        "",
        tuple(getattr(errors, name) for name in errors.__all__),
    ),
}
SHOWN_AS = {medusa.Run: "Run"}
LINE = 88
CODE = re.compile(r"[a-z]+(\.[a-z_]+)+")


def title_of(thing: object) -> str:
    """``md.count``; ``Stream``, ``Run`` for what other calls give."""
    name = SHOWN_AS.get(thing, getattr(thing, "__name__"))  # type: ignore[call-overload]  # noqa: B009
    if getattr(medusa, name, None) is thing:
        return f"md.{name}"
    return f"md.testing.{name}" if getattr(medusa.testing, name, None) is thing else str(name)


def signature_of(thing: object, name: str) -> str:
    """As it stands in the source, on one line where it fits."""
    try:
        made = struct_signature if is_struct(thing) else inspect.signature
        found = made(thing)  # type: ignore[operator]
    except (TypeError, ValueError):
        return name
    kept = [
        p.replace(annotation=_Plain(p.annotation)) if p.annotation is not p.empty else p
        for p in found.parameters.values()
        if p.name not in ("self", "cls")
    ]
    back = found.return_annotation
    gives = "" if back in (found.empty, None, "None") else f" -> {back}"
    text = str(found.replace(parameters=kept, return_annotation=found.empty)) + gives
    text = name + short(text)
    if len(text) <= LINE:
        return text
    lines: list[str] = []
    starred = False
    for parameter in kept:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            lines.append("*")
        starred = starred or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        lines.append(short(str(parameter)))
    return f"{name}(\n" + "".join(f"    {line},\n" for line in lines) + f"){gives}"


def is_struct(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, msgspec.Struct)


def struct_signature(thing: Any) -> inspect.Signature:
    """Its fields; asked for it, msgspec looks for modules that only type checkers load."""
    names, defaults = thing.__struct_fields__, thing.__struct_defaults__
    given = {}
    for kind in reversed(thing.__mro__):
        given.update(getattr(kind, "__annotations__", {}))
    missing = len(names) - len(defaults)
    return inspect.Signature(
        [
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=defaults[place - missing] if place >= missing else inspect.Parameter.empty,
                annotation=given[name],
            )
            for place, name in enumerate(names)
        ]
    )


def short(text: str) -> str:
    """Types without their modules."""
    return re.sub(r"\b(?:[a-z_]+\.)+([A-Z]\w*)", r"\1", text)


class _Plain:
    """An annotation that is written without quotes."""

    def __init__(self, text: object) -> None:
        self.text = text

    def __repr__(self) -> str:
        return str(self.text)


def prose_of(doc: str | None) -> str:
    """A docstring as Markdown: its sections become lists."""
    text = inspect.cleandoc(doc or "")
    text = re.sub(r"``(.+?)``", r"`\1`", text, flags=re.DOTALL)
    parts = re.split(
        r"^(Args|Raises|Returns|Attributes|Yields):\n((?:[ ]{4}.*\n?|\n)+)", text, flags=re.MULTILINE
    )
    out = [literal_blocks(parts[0].strip())]
    for head, body, after in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        lines = textwrap.dedent(body).strip("\n").split("\n")
        if head in ("Returns", "Yields"):
            out.append(f"**{head}** " + " ".join(line.strip() for line in lines))
        else:
            items = re.split(r"\n(?=\S)", "\n".join(lines))
            made = (re.sub(r"\s*\n\s*", " ", item.strip()) for item in items)
            out.append(
                f"**{head}**\n\n" + "\n".join("- " + re.sub(r"^([\w*, ]+):", r"`\1`:", item) for item in made)
            )
        out.append(literal_blocks(after.strip()))
    return "\n\n".join(part for part in out if part)


def literal_blocks(text: str) -> str:
    """What stands indented behind ``::``, and examples behind ``>>>``, as fenced blocks."""
    made = []
    for part in re.split(r"\n\s*\n(?=    )|(?<=\n)\n(?=\S)", text):
        if part.startswith("    "):
            part = "```\n" + textwrap.dedent(part).rstrip() + "\n```"
        elif part.startswith(">>>"):
            part = "```python\n" + part.rstrip() + "\n```"
        made.append(re.sub(r"(?:^|\s*)::$", ":" if len(part) > 2 else "", part))
    return "\n\n".join(part for part in made if part.strip())


def members_of(cls: type) -> dict[str, object]:
    """Public methods and properties by name, inherited ones too, in the order of their definition."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("medusa"):
            continue
        for name, value in vars(base).items():
            method = isinstance(value, property | classmethod | staticmethod) or callable(value)
            if name.startswith("_") or not method:
                continue
            found[name] = value
    return found


def entry_of(thing: object) -> str:
    """One name with all that belongs to it."""
    title = title_of(thing)
    if not inspect.isclass(thing):
        return f"### {title}\n\n```python\n{signature_of(thing, title)}\n```\n\n{prose_of(thing.__doc__)}\n"
    made = [f"### {title}\n"]
    if title.startswith("md.") and not issubclass(thing, BaseException | medusa.Stream):
        made.append(f"```python\n{signature_of(thing, title)}\n```\n")
    made.append(prose_of(thing.__doc__) + "\n")
    if not issubclass(thing, BaseException):
        made += [member_of(title.split(".")[-1], name, value) for name, value in members_of(thing).items()]
    return "\n".join(made)


def member_of(owner: str, name: str, value: object) -> str:
    doc = prose_of(getattr(value, "__doc__", None))
    if isinstance(value, property):
        return f"#### {owner}.{name}\n\n{doc}\n"
    function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    return f"#### {owner}.{name}\n\n```python\n{signature_of(function, name)}\n```\n\n{doc}\n"


def codes() -> dict[str, set[str]]:
    """Code of an error -> the classes that carry it, as the source says."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id.endswith("Error")
            ):
                for keyword in node.keywords:
                    value = keyword.value
                    if (
                        keyword.arg == "code"
                        and isinstance(value, ast.Constant)
                        and CODE.fullmatch(str(value.value))
                    ):
                        found.setdefault(str(value.value), set()).add(node.func.id)
    return dict(sorted(found.items()))


def reference() -> str:
    """The page."""
    made = ["# Reference\n\nEvery public name; `md` is `import medusa as md`.\n"]
    made.append(
        " · ".join(f"[{name}](#{name.lower().replace(' ', '-')})" for name in (*SECTIONS, "Codes of errors"))
        + "\n"
    )
    for name, (about, things) in SECTIONS.items():
        about = re.sub(r"([\w-]+\.md)", r"[\1](\1)", about)
        made.append(f"## {name}\n\n{about}\n")
        made += [entry_of(thing) for thing in things]
    made.append("## Codes of errors\n\n`error.code` doesn't change with the message.\n")
    made.append("| code | error |\n|---|---|")
    made += [f"| `{code}` | {', '.join(sorted(classes))} |" for code, classes in codes().items()]
    return "\n".join(made) + "\n"


def public_names() -> dict[str, object]:
    """What the reference must have: the names of the package."""
    return {
        name: getattr(medusa, name)
        for name in medusa.__all__
        if name != "__version__" and not isinstance(getattr(medusa, name), ModuleType)
    }
