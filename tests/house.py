"""The house rules, as functions from a file to what breaks a rule in it. test_house.py runs them.

A rule takes a Source and yields (line, what is wrong and what to do instead).
"""

from __future__ import annotations

import ast
import gc
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Low to high. A file imports only from its own room or a lower layer; rooms of one layer keep apart.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "elements", "units", "ports", "decoders", "automaton"),
    ("query",),
    ("engine",),
    ("wire", "market"),
    ("recovery", "consistency"),
    ("nodes",),
    ("runtime",),
    ("sim",),
    ("io", "testing"),
    ("spark",),
    ("apps",),
    ("cli",),
    ("__main__",),
    ("__init__",),
)
GROUND = LAYERS[0]
FACADES = {"medusa/spark/__init__.py": "lists what md.spark offers, the pipeline included"}
"""Packages whose names come from higher layers, as those of ``medusa`` itself do, each with its reason."""
MINDS = ("wire", "recovery", "consistency", "market", "nodes")
IO_TEXT = "time random secrets uuid os pathlib socket zmq asyncio threading subprocess tempfile shutil"
IO = frozenset(IO_TEXT.split())
MINDS_BANNED = IO | {"logging", "multiprocessing", "concurrent", "select", "signal", "datetime"}
LOADS_CODE = frozenset({"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"})
# What a program that only builds queries loads, and what that must not bring along.
LIGHT = (
    "medusa",
    "medusa.cli.main",
    "medusa.query.builder",
    "medusa.query.expressions.column",
    "medusa.query.expressions.aggregates",
)
HEAVY_TEXT = "pyarrow sqlglot zmq numpy rich duckdb pandas polars matplotlib starlette uvicorn"
HEAVY = frozenset(HEAVY_TEXT.split())

LINES_NOTICED = 500
BINDING_LINES_NOTICED = 250
# Tests that wait a moment between two looks, each with its reason. This list may only shrink.
ASKS_AGAIN = {"tests/system/nodes.py": "until() asks processes again and again, with a deadline"}

Finding = tuple[int, str]
Rule = Callable[["Source"], Iterator[Finding]]


@dataclass(frozen=True)
class Import:
    """One imported module; ``top``: when the file is loaded; ``typing``: for the type checker only."""

    name: str
    line: int
    top: bool
    typing: bool


@dataclass(frozen=True)
class Source:
    """A file of the project: its path from the root, and its text."""

    path: str
    text: str

    @property
    def room(self) -> str:
        """``query`` for medusa/query/types.py, ``cli`` for medusa/cli/main.py, empty outside medusa/."""
        parts = Path(self.path).parts
        return parts[1].removesuffix(".py") if parts[0] == "medusa" and len(parts) > 1 else ""

    @property
    def module(self) -> str:
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree: a walk costs more than what most rules do at a node."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def imports_by_call(self) -> bool:
        """Whether expressions may import something: most of a tree is expressions."""
        return "import_module" in self.text or "__import__" in self.text

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(_imports(self, self.tree, top=True, typing=False))

    @property
    def is_package_code(self) -> bool:
        return self.path.startswith("medusa/") and self.path.endswith(".py")


def _imports(source: Source, node: ast.AST, *, top: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and not source.imports_by_call:
            continue
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, top, typing) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = absolute(source, child)
            for alias in child.names:
                yield Import(f"{base}.{alias.name}" if base else alias.name, child.lineno, top, typing)
        elif isinstance(child, ast.Call) and _called(child) in ("import_module", "__import__"):
            if child.args and isinstance(child.args[0], ast.Constant):
                yield Import(str(child.args[0].value), child.lineno, top, typing)
            yield from _imports(source, child, top=top, typing=typing)
        elif isinstance(child, ast.If) and _last_word(child.test) == "TYPE_CHECKING":
            for statement in child.body:
                yield from _imports(source, ast.Module([statement], []), top=top, typing=True)
            for statement in child.orelse:
                yield from _imports(source, ast.Module([statement], []), top=top, typing=typing)
        else:
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from _imports(source, child, top=top and not inner, typing=typing)


def absolute(source: Source, node: ast.ImportFrom) -> str:
    """The module that ``from ... import`` names, whatever dots it begins with."""
    if not node.level:
        return node.module or ""
    package = source.module.split(".")
    if not source.path.endswith("__init__.py"):
        package = package[:-1]
    package = package[: len(package) - node.level + 1]
    return ".".join([*package, *([node.module] if node.module else [])])


def _called(node: ast.Call) -> str:
    """The last word of what is called: ``sleep`` for ``time.sleep(1)``."""
    return _last_word(node.func)


def _last_word(node: ast.expr) -> str:
    """``sleep`` for ``time.sleep``; empty where it is no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _layer(room: str) -> int | None:
    return next((i for i, rooms in enumerate(LAYERS) if room in rooms), None)


# --- rules for medusa/ ------------------------------------------------------------------------


def layers(source: Source) -> Iterator[Finding]:
    if not source.is_package_code:
        return
    own = _layer("__init__" if source.path in FACADES else source.room)
    if own is None:
        rooms = ", ".join(room for rooms in LAYERS for room in rooms)
        yield 1, f"{source.room!r} is no room of the house ({rooms}): move it, or give it a layer"
        return
    for found in source.imports:
        words = found.name.split(".")
        if words[0] != "medusa" or words[1:2] == ["_native"]:
            continue
        room = words[1] if len(words) > 1 and _layer(words[1]) is not None else "__init__"
        other = _layer(room)
        assert other is not None
        if other > own:
            yield (
                found.line,
                f"imports {found.name}, which is above: import from a lower layer, or hand it in",
            )
        elif other == own and room != source.room and room not in GROUND:
            yield found.line, f"imports {found.name} next door: move what both need to a lower layer"


def native_only_in_engine(source: Source) -> Iterator[Finding]:
    if source.is_package_code and source.room != "engine":
        for found in source.imports:
            if found.name.startswith("medusa._native"):
                yield found.line, "imports medusa._native: go through a function of medusa/engine"


def one_room_each(source: Source) -> Iterator[Finding]:
    homes = {"sqlglot": ("query",), "zmq": ("runtime",)}
    for found in source.imports if source.is_package_code else ():
        home = homes.get(found.name.split(".")[0])
        if home is not None and source.room not in home:
            yield found.line, f"imports {found.name}: only medusa/{home[0]} does; ask it"


def minds_do_no_io(source: Source) -> Iterator[Finding]:
    if not source.is_package_code or source.room not in (*MINDS, "engine"):
        return
    banned = MINDS_BANNED if source.room in MINDS else IO
    for found in source.imports:
        if found.name.split(".")[0] in banned and not found.typing:
            yield found.line, f"imports {found.name}: take time, randomness and IO from the caller or a port"
    for node in source.nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "print")
        ):
            yield node.lineno, f"calls {node.func.id}(): do IO through a port"


def minds_are_deterministic(source: Source) -> Iterator[Finding]:
    if not source.is_package_code or source.room not in MINDS:
        return
    sets = _names_of_sets(source)
    for node in source.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("hash", "id"):
            yield (
                node.lineno,
                f"calls {node.func.id}(): it differs between runs; use a key that is part of the data",
            )
        for expression in _iterated(node):
            if _is_set(expression, sets):
                yield (
                    expression.lineno,
                    "goes through a set, whose order differs between runs: use sorted(...) or a dict",
                )


def _iterated(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield node.iter
    elif isinstance(node, ast.Starred):
        yield node.value
    elif isinstance(node, ast.Call) and _called(node) in (
        "list",
        "tuple",
        "enumerate",
        "zip",
        "map",
        "iter",
        "join",
    ):
        yield from node.args


def _is_set(node: ast.expr, names: set[str]) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return _is_set(node.left, names) or _is_set(node.right, names)
    if isinstance(node, ast.Name):
        return node.id in names
    return isinstance(node, ast.Attribute) and node.attr in names


def _says_set(annotation: ast.expr) -> bool:
    return re.match(r"(set|frozenset)\b", ast.unparse(annotation)) is not None


def _names_of_sets(source: Source) -> set[str]:
    """Variables and attributes of this file that are declared or made as sets."""
    names = set()
    for node in source.nodes:
        targets: list[ast.expr] = []
        if isinstance(node, ast.AnnAssign) and _says_set(node.annotation):
            targets = [node.target]
        elif isinstance(node, ast.Assign) and _is_set(node.value, set()):
            targets = node.targets
        elif isinstance(node, ast.arg) and node.annotation is not None and _says_set(node.annotation):
            names.add(node.arg)
        for target in targets:
            if isinstance(target, ast.Name):
                names.add(target.id)
            elif isinstance(target, ast.Attribute):
                names.add(target.attr)
    return names


def data_never_becomes_code(source: Source) -> Iterator[Finding]:
    if not source.is_package_code:
        return
    for found in source.imports:
        if found.name.split(".")[0] in LOADS_CODE:
            yield found.line, f"imports {found.name}: reading it may run code; use msgspec or Arrow IPC"
    for node in source.nodes:
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in ("eval", "exec", "compile", "__import__"):
            yield called.lineno, f"calls {called.id}(): use a table of functions"


def types_are_read_by_decoders(source: Source) -> Iterator[Finding]:
    if not source.is_package_code or source.path == "medusa/decoders.py":
        return
    for node in source.nodes:
        called = node.func if isinstance(node, ast.Call) else None
        if not isinstance(called, ast.Attribute) or not ast.unparse(called).startswith("msgspec."):
            continue
        typed = called.attr == "decode" and any(each.arg == "type" for each in node.keywords)
        if called.attr in ("Decoder", "convert") or typed:
            said = ast.unparse(called)
            yield node.lineno, f"calls {said}(): two threads that do end the process; see medusa/decoders.py"


def dependencies_are_declared(source: Source) -> Iterator[Finding]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    modules = {"pyzmq": "zmq", "pyyaml": "yaml", "prometheus_client": "prometheus_client"}
    always = {_distribution(text) for text in project["dependencies"]}
    extras = {_distribution(text) for texts in project["optional-dependencies"].values() for text in texts}
    always, extras = ({modules.get(name, name) for name in names} for names in (always, extras))
    for found in source.imports if source.is_package_code else ():
        name = found.name.split(".")[0]
        if name in sys.stdlib_module_names or name == "medusa" or name in always or found.typing:
            continue
        if name not in extras:
            yield found.line, f"imports {name}, which pyproject.toml doesn't name: declare it, or do without"
        elif found.top:
            yield (
                found.line,
                f"imports {name}, an extra, when it is loaded: import it inside the function that needs it",
            )


def mypy_finds_what_is_imported(source: Source) -> Iterator[Finding]:
    """`make lint` installs the dependencies and the extra lint, and nothing else."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, overrides = declared["project"], declared["tool"]["mypy"]["overrides"]
    wanted = project["dependencies"] + project["optional-dependencies"]["lint"]
    found_by_mypy = {_distribution(text) for text in wanted} | {"zmq", "medusa"}
    found_by_mypy |= {name.split(".")[0] for rule in overrides for name in rule["module"]}
    for found in source.imports if source.is_package_code else ():
        name = found.name.split(".")[0]
        if name not in sys.stdlib_module_names and name not in found_by_mypy:
            yield (
                found.line,
                f"imports {name}, which mypy won't find: name it in the extra lint or override it",
            )


def _distribution(text: str) -> str:
    return re.split(r"[<>=!~\[ ;]", text)[0].replace("-", "_").lower()


# --- rules for every file ---------------------------------------------------------------------


def tests_do_not_sleep(source: Source) -> Iterator[Finding]:
    if not source.path.startswith("tests/") or not source.path.endswith(".py") or source.path in ASKS_AGAIN:
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and _called(node) == "sleep":
            yield node.lineno, "sleeps: wait for what should happen, with a deadline"


def files_are_short(source: Source) -> Iterator[Finding]:
    binding = source.path.endswith((".pyx", ".pxi", ".pxd"))
    if not binding and not source.path.endswith((".py", ".c", ".h")):
        return
    lines, most = source.text.count("\n"), BINDING_LINES_NOTICED if binding else LINES_NOTICED
    if lines > most:
        yield lines, f"has {lines} lines, more than {most}: is it one idea, or two?"


LEFTOVERS = re.compile(
    r"\b(TODO|FIXME|XXX|HACK)\b|raise NotImplementedError|\bnot implemented\b|\bfor now\b", re.IGNORECASE
)
PLACES = re.compile(
    r"(?<![\w.])/(work|root|home|Users)/\w|(?<!\w)/tmp/w/|(?<!\w)/opt/|\.\./shared|\bpypi\.org\b|pythonhosted|conda\.org"
)


def nothing_is_left_over(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.text.split("\n"), 1):
        found = LEFTOVERS.search(line)
        if found and not source.path.startswith("tests/house"):
            yield number, f"says {found[0]!r}: do it, or leave it out and say so in the note"


def no_place_of_this_machine(source: Source) -> Iterator[Finding]:
    for number, line in enumerate(source.text.split("\n"), 1):
        found = PLACES.search(line)
        if found and not source.path.startswith("tests/house"):
            yield (
                number,
                f"names {found[0]!r}: no file may lean on one machine's paths or on a registry's address",
            )


KINDS_LISTED = ("medusa/query/boxes/", "medusa/engine/operator_kinds.py", "medusa/spark/support.py")
"""Where kinds of boxes stand in a list: elsewhere a box is asked."""

KINDS_TOGETHER = 3
NO_KINDS = frozenset(
    [
        "AggregateCall",
        "Box",
        "BoxData",
        "Field",
        "Function",
        "Graph",
        "Input",
        "Schema",
        "StrictData",
        "Update",
    ]
)


def kinds_of_boxes_are_asked(source: Source) -> Iterator[Finding]:
    """One function, or one statement outside of functions, tells at most three kinds of boxes apart."""
    if not source.is_package_code or source.path.startswith(KINDS_LISTED):
        return
    names, modules = set(), set()
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("medusa.query"):
            bound = {alias.asname or alias.name for alias in node.names if alias.name not in NO_KINDS}
            if (node.module or "").startswith("medusa.query.boxes"):
                names |= {name for name in bound if name[:1].isupper() and not name.isupper()}
            modules |= bound & {"boxes"}
    scopes = [node for node in source.nodes if isinstance(node, ast.FunctionDef)]
    scopes += [node for node in source.tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    for scope in scopes:
        told = {
            ast.unparse(each).split(".")[-1] for each in _told_apart(scope) if _is_kind(each, names, modules)
        }
        if len(told) > KINDS_TOGETHER:
            yield scope.lineno, f"tells {', '.join(sorted(told))} apart: ask the box (query/boxes/base.py)"


def _is_kind(node: ast.expr, names: set[str], modules: set[str]) -> bool:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value.id in modules and node.attr[:1].isupper()
    return isinstance(node, ast.Name) and node.id in names


def _told_apart(scope: ast.AST) -> Iterator[ast.expr]:
    """What stands in a list, in a union, as a key, in a pattern, or behind ``isinstance``."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            yield from node.elts
        elif isinstance(node, ast.Dict):
            yield from (key for key in node.keys if key is not None)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            yield from (node.left, node.right)
        elif isinstance(node, ast.MatchClass):
            yield node.cls
        elif isinstance(node, ast.Call) and _called(node) == "isinstance":
            yield from node.args[1:]


RULES: tuple[Rule, ...] = (
    layers,
    native_only_in_engine,
    one_room_each,
    minds_do_no_io,
    minds_are_deterministic,
    data_never_becomes_code,
    types_are_read_by_decoders,
    kinds_of_boxes_are_asked,
    dependencies_are_declared,
    mypy_finds_what_is_imported,
    tests_do_not_sleep,
    nothing_is_left_over,
    no_place_of_this_machine,
)

NOTICES: tuple[Rule, ...] = (files_are_short,)
"""What `make lint` says of a file, and nothing fails for."""

# --- the tree, and rules about all of it --------------------------------------------------------

FOLDERS = ("medusa", "pyspark_medusa", "native", "bindings", "tests", "bench", "docs", "examples", ".ci")
TEXTS = {
    ".py",
    ".pyi",
    ".pyx",
    ".pxi",
    ".pxd",
    ".c",
    ".h",
    ".md",
    ".toml",
    ".txt",
    ".in",
    ".html",
    ".js",
    ".css",
}
MADE = {"__pycache__", "results", "bindings/_native.c"}


@cache
def tree() -> list[Source]:
    """Every text file of the project that a person wrote, parsed, once for all rules."""
    paths = [
        path for path in ROOT.iterdir() if path.suffix in TEXTS or path.name in ("Makefile", ".gitignore")
    ]
    for folder in FOLDERS:
        paths += sorted((ROOT / folder).rglob("*"))
    sources = []
    for path in paths:
        name = path.relative_to(ROOT).as_posix()
        written = path.suffix in TEXTS or path.parent.name == ".ci" or path.parent == ROOT
        if path.is_file() and written and name not in MADE and not MADE & set(path.parts):
            sources.append(Source(name, path.read_text(encoding="utf-8")))
    _parse(sources)
    return sources


def _parse(sources: list[Source]) -> None:
    """While the garbage collector rests: it would go through all that is there, for every few files again."""
    collects = gc.isenabled()
    gc.disable()
    try:
        for source in sources:
            if source.path.endswith(".py"):
                _ = source.imports, source.nodes
    finally:
        if collects:
            gc.enable()


def import_graph(sources: list[Source]) -> dict[str, set[str]]:
    """Module -> modules of medusa that it imports, at load or inside functions (not for typing)."""
    code = {source.module: source for source in sources if source.is_package_code}
    graph: dict[str, set[str]] = {}
    for module, source in code.items():
        graph[module] = set()
        for found in source.imports:
            # `from medusa.query import types` may name a module or something inside one.
            target = found.name if found.name in code else found.name.rpartition(".")[0]
            if not found.typing and target in code and target != module:
                graph[module].add(target)
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """One path for each edge that closes a cycle."""
    found, done, path = [], set(), []

    def visit(module: str) -> None:
        if module in path:
            found.append([*path[path.index(module) :], module])
        elif module not in done:
            path.append(module)
            for target in sorted(graph.get(module, ())):
                visit(target)
            path.pop()
            done.add(module)

    for module in sorted(graph):
        visit(module)
    return found


def heavy_when_loaded(sources: list[Source]) -> list[str]:
    """Heavy packages that come along when a LIGHT module is loaded, with the way there."""
    code = {source.module: source for source in sources if source.is_package_code}
    ways = {module: [module] for module in LIGHT if module in code}
    found, queue = [], list(ways)
    for module in queue:
        for new in code[module].imports:
            if not new.top or new.typing:
                continue
            if new.name.split(".")[0] in HEAVY:
                way = " -> ".join([*ways[module], new.name])
                found.append(f"{code[module].path}:{new.line}: light path: {way}: import it in the function")
            target = new.name if new.name in code else new.name.rpartition(".")[0]
            if target in code and target not in ways:
                ways[target] = [*ways[module], target]
                queue.append(target)
    return found


def unused(sources: list[Source]) -> list[str]:
    """Modules that nothing in the package or in the examples names."""
    graph = import_graph(sources)
    users = [
        each
        for each in sources
        if each.is_package_code or each.path.startswith(("examples/", "pyspark_medusa/"))
    ]
    typed = {found.name for source in users if source.path.endswith(".py") for found in source.imports}
    typed |= {name.rpartition(".")[0] for name in typed}
    used = set().union(*graph.values(), typed)
    public = "".join(source.text for source in sources if source.path == "medusa/__init__.py")
    return [
        module
        for module in sorted(graph)
        if module not in used
        and f'"{module}"' not in public
        and module.split(".")[-1] not in ("medusa", "cli", "__main__")
        and not any(other.startswith(module + ".") for other in graph)
    ]


if __name__ == "__main__":
    for noticed in tree():
        for rule in NOTICES:
            for line, words in rule(noticed):
                print(f"notice: {noticed.path}:{line}: {words}")
