"""House rules about all of ``medusa/`` and ``native/``: folders, classes, and who touches whose insides.

Each rule gives what breaks it as keys with a count. ``house_exceptions.toml`` says which breaches stood when
the rule was made; that list may only shrink.
"""

from __future__ import annotations

import ast
import fnmatch
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import house
from tests.house import ROOT, Source

FILES_MAX = 24
DEPTH_MAX = 3
INHERITANCE_MAX = 3
LOOKS = {"get", "index", "items", "keys", "values"}
"""Methods of dictionaries and lists that only look."""
FACE = {"receive", "tick", "report", "outbox", "admit", "earlier", "wake_at_us", "status"}
"""What a driver may use of a node: ``report`` takes what ``medusa.nodes.reports`` has; the last four ask."""

Breaches = Counter[str]
StructureRule = Callable[[list[Source]], Breaches]


def exceptions() -> dict[str, dict[str, int]]:
    """Rule -> what it may find, and how often."""
    return tomllib.loads((ROOT / "tests" / "house_exceptions.toml").read_text())


def _code(sources: list[Source]) -> Iterator[Source]:
    yield from (source for source in sources if source.is_package_code)


def folders_have_few_files(sources: list[Source]) -> Breaches:
    """At most 24 files in a folder; a stranger reads so many names at once."""
    counts: Breaches = Counter()
    for source in sources:
        path = Path(source.path)
        if path.parts[0] in ("medusa", "native") and path.name != "__init__.py":
            counts[path.parent.as_posix()] += 1
    return Counter({folder: count for folder, count in counts.items() if count > FILES_MAX})


def folders_are_not_deep(sources: list[Source]) -> Breaches:
    """At most three folders below ``medusa/``."""
    folders = {Path(source.path).parent for source in _code(sources)}
    return Counter({each.as_posix(): 1 for each in folders if len(each.parts) - 1 > DEPTH_MAX})


def packages_say_what_they_own(sources: list[Source]) -> Breaches:
    """The ``__init__.py`` of each folder of ``medusa/`` has a docstring."""
    return Counter(
        {
            source.path: 1
            for source in _code(sources)
            if source.path.endswith("/__init__.py") and not ast.get_docstring(source.tree)
        }
    )


@dataclass(frozen=True, slots=True)
class _Module:
    """What a module defines: classes by their names, each with its bases as they are written; and what it
    imports: the name here -> the module, and what of it (empty: all of it)."""

    classes: dict[str, list[str]]
    imported: dict[str, tuple[str, str]]


def _module(source: Source) -> _Module:
    classes: dict[str, list[str]] = {}
    imported: dict[str, tuple[str, str]] = {}

    def visit(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                bases = [base.value if isinstance(base, ast.Subscript) else base for base in child.bases]
                classes[inside + child.name] = [ast.unparse(base) for base in bases]
                visit(child, f"{inside}{child.name}.")
                continue
            if isinstance(child, ast.ImportFrom):
                base = house.absolute(source, child)
                imported.update({each.asname or each.name: (base, each.name) for each in child.names})
            elif isinstance(child, ast.Import):
                imported.update({each.asname or each.name: (each.name, "") for each in child.names})
            visit(child, inside)

    visit(source.tree, "")
    return _Module(classes, imported)


def _defined(module: str, name: str, modules: dict[str, _Module]) -> tuple[str, str] | None:
    """The class that a module means by a name, through all imports, as (its module, its name there)."""
    seen = set()
    while module in modules and (module, name) not in seen:
        seen.add((module, name))
        here = modules[module]
        if name in here.classes:
            return module, name
        # Of `a.b.C` the longest beginning that was imported; what is left is looked up where that comes from.
        words = name.split(".")
        first = next((n for n in range(len(words), 0, -1) if ".".join(words[:n]) in here.imported), 0)
        if not first:
            return None
        origin, what = here.imported[".".join(words[:first])]
        rest = words[first:]
        if f"{origin}.{what}" in modules:
            origin, what = f"{origin}.{what}", ""
        module, name = origin, ".".join([*([what] if what else []), *rest])
    return None


def inheritance_is_flat(sources: list[Source]) -> Breaches:
    """A class stands at most three deep: itself, what it inherits from, and what that inherits from."""
    modules = {source.module: _module(source) for source in _code(sources)}

    def depth(module: str, name: str, below: tuple[tuple[str, str], ...] = ()) -> int:
        inside = name.rpartition(".")[0]
        deepest = 0
        for base in modules[module].classes[name]:
            own = f"{inside}.{base}" if f"{inside}.{base}" in modules[module].classes else base
            found = _defined(module, own, modules)
            if found is not None and found not in (*below, (module, name)):
                deepest = max(deepest, depth(*found, (*below, (module, name))))
        return 1 + deepest

    breaches: Breaches = Counter()
    for module, each in modules.items():
        for name in each.classes:
            last = name.rpartition(".")[2]
            if (found := depth(module, name)) > INHERITANCE_MAX:
                breaches[last] = max(breaches[last], found)
    return breaches


def class_names_are_unique(sources: list[Source]) -> Breaches:
    """No two public classes of ``medusa/`` have the same name."""
    counts: Breaches = Counter()
    for source in _code(sources):
        counts.update(
            node.name
            for node in source.nodes
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        )
    return Counter({name: count for name, count in counts.items() if count > 1})


def _root(node: ast.expr) -> tuple[ast.expr, int]:
    """Where a chain of attributes begins, and how many there are: ``(self, 2)`` for ``self.a.b``."""
    steps = 0
    while isinstance(node, ast.Attribute):
        node, steps = node.value, steps + 1
    return node, steps


def _assigned(node: ast.AST) -> Iterator[ast.expr]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets = [node.target]
    for target in targets:
        yield from target.elts if isinstance(target, ast.Tuple | ast.List) else [target]


def _declared_fields(source: Source) -> set[str]:
    """The annotated fields of the records of a file."""
    classes = (node for node in source.nodes if isinstance(node, ast.ClassDef))
    return {
        line.target.id
        for each in classes
        for line in each.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    }


def _constructed(function: ast.AST) -> set[str]:
    """What a function makes itself: functions in it, and what variables hold by ``made = Page(...)``,
    ``made = cls(...)``, ``made = cls.__new__(cls)``, ``made = object.__new__(cls)``."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node is not function:
            found.add(node.name)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            maker = node.value.func
            new = isinstance(maker, ast.Attribute) and maker.attr == "__new__"
            if isinstance(maker, ast.Attribute) and new:
                maker = maker.value
            name = maker.id if isinstance(maker, ast.Name) else ""
            if name == "cls" or (new and name == "object") or name.lstrip("_")[:1].isupper():
                found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return found


def _standard_modules(source: Source) -> set[str]:
    """What a file calls the modules of the standard library that it imports."""
    return {
        name.asname or name.name
        for node in source.nodes
        if isinstance(node, ast.Import)
        for name in node.names
        if name.name in sys.stdlib_module_names
    }


def nobody_assigns_into_others(sources: list[Source]) -> Breaches:
    """An attribute is assigned by the methods of its own object; others ask by a call.

    A file may write the fields of the records that it declares, and a function what it has just made: nobody
    else has seen that. What a standard module lets programs replace (``sys.stdout``,
    ``warnings.showwarning``) is replaced by assignment: it has no call for that.
    """
    counts: Breaches = Counter()
    for source in _code(sources):
        fields, modules = _declared_fields(source), _standard_modules(source)
        places = set()
        for function in source.nodes:
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            made = _constructed(function)
            for target in (target for node in ast.walk(function) for target in _assigned(node)):
                root, steps = _root(target)
                if not isinstance(target, ast.Attribute) or not isinstance(root, ast.Name):
                    continue
                own = steps == 1 and root.id in {"self", "cls", *made, *modules}
                if not own and target.attr not in fields:
                    places.add((target.lineno, target.col_offset))
        if places:
            counts[source.path] = len(places)
    return counts


def nobody_reaches_through(sources: list[Source]) -> Breaches:
    """``self.a.b.do()`` asks a stranger: ``self.a`` is asked to have it done.

    Looking into a dictionary that ``self.a`` shows is no call of a stranger: ``self.a.b.items()`` is as
    ``for x in self.a.b``, and ``self.a.b.get(x)`` as ``self.a.b[x]``. Changing it is one. The ``outbox`` of a
    mind belongs to its face: whoever drives it takes from there what is to be done.
    """
    counts: Breaches = Counter()
    for source in _code(sources):
        for node in source.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                root, steps = _root(node.func)
                owner = node.func.value
                steps -= node.func.attr in LOOKS or (
                    isinstance(owner, ast.Attribute) and owner.attr == "outbox"
                )
                if isinstance(root, ast.Name) and root.id == "self" and steps > 2:
                    counts[source.path] += 1
    return counts


def drivers_use_the_face(sources: list[Source]) -> Breaches:
    """Who drives a node brings messages, time and reports, and takes what is to be done. Nothing else."""
    counts: Breaches = Counter()
    for source in _code(sources):
        if not source.path.startswith(("medusa/runtime/", "medusa/sim/actors/")):
            continue
        for node in source.nodes:
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Attribute):
                continue
            if node.value.attr in ("brain", "_brain") and node.attr not in FACE:
                counts[f"{source.path}: {node.attr}"] += 1
    return counts


_PLACE = re.compile(r"`([\w*-]+(?:/[\w.*-]+)+)/?`")
TABLES = "docs/architecture.md"
"""Of other documents nobody is sent to a file."""


def documents_name_what_is_there(sources: list[Source]) -> Breaches:
    """A path in a package's docstring or a table of docs/architecture.md is that of a file or a folder.

    It begins at the root, in ``medusa/`` or where it stands; ``.py`` may be left out, ``*`` is any text.
    """
    known = {source.path for source in sources}
    known |= {path.removesuffix(".py") for path in known}
    known |= {parent.as_posix() for path in known for parent in Path(path).parents}
    counts: Breaches = Counter()
    for source in sources:
        if source.path == TABLES:
            said = "\n".join(line for line in source.text.splitlines() if line.startswith("|"))
        elif source.is_package_code and source.path.endswith("/__init__.py"):
            said = ast.get_docstring(source.tree) or ""
        else:
            continue
        folder = Path(source.path).parent.as_posix()
        for place in _PLACE.findall(said):
            names = [place, f"medusa/{place}", f"{folder}/{place}"]
            if not any(name in known or ("*" in name and fnmatch.filter(known, name)) for name in names):
                counts[f"{source.path}: {place}"] += 1
    return counts


STRUCTURE: tuple[StructureRule, ...] = (
    folders_have_few_files,
    folders_are_not_deep,
    packages_say_what_they_own,
    inheritance_is_flat,
    class_names_are_unique,
    nobody_assigns_into_others,
    nobody_reaches_through,
    drivers_use_the_face,
    documents_name_what_is_there,
)


def judged(rule: StructureRule, sources: list[Source], allowed: dict[str, int]) -> list[str]:
    """One line for each breach beyond ``allowed``, and for each entry of it that is no breach any more."""
    found = rule(sources)
    words = (rule.__doc__ or "").split("\n")[0]
    lines = [
        f"{rule.__name__}: {key}: {count}, allowed {allowed.get(key, 0)}: {words}"
        for key, count in sorted(found.items())
        if count > allowed.get(key, 0)
    ]
    lines += [
        f"{rule.__name__}: {key}: {found.get(key, 0)} found, {count} allowed: lower house_exceptions.toml"
        for key, count in sorted(allowed.items())
        if count > found.get(key, 0)
    ]
    return lines
