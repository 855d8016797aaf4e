"""The rules about the whole tree hold but for the listed exceptions, and each fires on a planted breach."""

from __future__ import annotations

import pytest

from tests import house, house_structure
from tests.house import Source
from tests.house_structure import STRUCTURE, StructureRule


@pytest.fixture(scope="module")
def sources() -> list[Source]:
    return house.tree()


@pytest.mark.parametrize("rule", STRUCTURE, ids=lambda rule: rule.__name__)
def test_the_tree_keeps(rule: StructureRule, sources: list[Source]) -> None:
    allowed = house_structure.exceptions().get(rule.__name__, {})
    found = house_structure.judged(rule, sources, allowed)
    assert not found, "\n" + "\n".join(found)


def test_exceptions_are_of_rules_that_there_are() -> None:
    assert set(house_structure.exceptions()) <= {rule.__name__ for rule in STRUCTURE}


CHAIN = "class A: pass\nclass B(A): pass\nclass C(B[int]): pass\n"
# (rule, path, text, what is found)
PLANTED: list[tuple[StructureRule, str, str, dict[str, int]]] = [
    (house_structure.folders_are_not_deep, "medusa/a/b/c/d/x.py", "", {"medusa/a/b/c/d": 1}),
    (house_structure.folders_are_not_deep, "medusa/a/b/c/x.py", "", {}),
    (
        house_structure.packages_say_what_they_own,
        "medusa/a/__init__.py",
        "x = 1",
        {"medusa/a/__init__.py": 1},
    ),
    (house_structure.packages_say_what_they_own, "medusa/a/__init__.py", '"""Owns x."""', {}),
    (house_structure.inheritance_is_flat, "medusa/a.py", CHAIN + "class D(C): pass", {"D": 4}),
    (house_structure.inheritance_is_flat, "medusa/a.py", CHAIN + "class D(A, C): pass", {"D": 4}),
    (
        house_structure.inheritance_is_flat,
        "medusa/a.py",
        CHAIN + "class D:\n    class E(C): pass\n    class F(E): pass",
        {"E": 4, "F": 5},
    ),
    (house_structure.inheritance_is_flat, "medusa/a.py", CHAIN, {}),
    (
        house_structure.class_names_are_unique,
        "medusa/a.py",
        "class A: pass\ndef f():\n    class A: pass",
        {"A": 2},
    ),
    (
        house_structure.class_names_are_unique,
        "medusa/a.py",
        "class _A: pass\ndef f():\n    class _A: pass",
        {},
    ),
    (house_structure.nobody_assigns_into_others, "medusa/a.py", "def f(b):\n    b.c = 1", {"medusa/a.py": 1}),
    (
        house_structure.nobody_assigns_into_others,
        "medusa/a.py",
        "def f(self):\n    self.b.c += 1\n    self.d, self.e.f = 1, 2",
        {"medusa/a.py": 2},
    ),
    (house_structure.nobody_assigns_into_others, "medusa/a.py", "def f(self):\n    self.b: int = 1", {}),
    (
        house_structure.nobody_assigns_into_others,
        "medusa/a.py",
        "class A:\n    c: int\n    def f(self, a, made):\n        a.c = self.b.c = 1\n        made.d = 1",
        {"medusa/a.py": 1},
    ),
    (
        house_structure.nobody_assigns_into_others,
        "medusa/a.py",
        "def f(cls, a):\n    c, d = a.x(), y()\n    b = cls()\n    b.e = 1\n    b.e.f = c.e = d.e = 1",
        {"medusa/a.py": 3},
    ),
    (
        house_structure.nobody_assigns_into_others,
        "medusa/a.py",
        "def f(cls, a):\n    b = object.__new__(cls)\n    b.c = b.c.d = 1\n    e = a.__new__(a)\n    e.c = 1",
        {"medusa/a.py": 2},
    ),
    (
        house_structure.nobody_assigns_into_others,
        "medusa/a.py",
        "def f(a):\n    def g(): pass\n    g.__doc__ = ''\n    g.x.y = 1\n    f.x = 1\n    a.__doc__ = ''",
        {"medusa/a.py": 3},
    ),
    (
        house_structure.nobody_assigns_into_others,
        "medusa/a.py",
        "import sys\nimport medusa.b\nimport zmq\nfrom sys import path\n"
        "def f():\n    sys.stdout = 1\n    sys.a.b = 1\n    medusa.b = 1\n    zmq.a = 1\n    path.a = 1",
        {"medusa/a.py": 4},
    ),
    (
        house_structure.nobody_reaches_through,
        "medusa/a.py",
        "def f(self):\n    self.a.b.c()",
        {"medusa/a.py": 1},
    ),
    (
        house_structure.nobody_reaches_through,
        "medusa/a.py",
        "def f(self):\n    self.a.b.get(1)\n    self.a.b.items()\n    self.a.b.pop(1)\n    self.a.b.c.get(1)",
        {"medusa/a.py": 2},
    ),
    (
        house_structure.nobody_reaches_through,
        "medusa/a.py",
        "def f(self):\n    self.a.outbox.take()\n    self.a.outbox.b.take()\n    self.outbox.b.take()",
        {"medusa/a.py": 2},
    ),
    (house_structure.nobody_reaches_through, "medusa/a.py", "def f(self):\n    self.a.b(self.a.c)", {}),
    (
        house_structure.drivers_use_the_face,
        "medusa/runtime/node/loop.py",
        "def f(self):\n    self._brain.receive()\n    self._brain.commands.x()",
        {"medusa/runtime/node/loop.py: commands": 1},
    ),
    (house_structure.drivers_use_the_face, "medusa/cli/a.py", "def f(self):\n    self.brain.commands", {}),
    (
        house_structure.documents_name_what_is_there,
        "medusa/a/__init__.py",
        '"""See ``medusa/a``, ``a/__init__.py``, ``a/__*`` and ``b/c``."""',
        {"medusa/a/__init__.py: b/c": 1},
    ),
    (house_structure.documents_name_what_is_there, "medusa/a/b.py", '"""See ``b/c``."""', {}),
    (
        house_structure.documents_name_what_is_there,
        "docs/architecture.md",
        "To come: `a/b`.\n| x | `c/d.py` |\n",
        {"docs/architecture.md: c/d.py": 1},
    ),
]


@pytest.mark.parametrize(("rule", "path", "text", "found"), PLANTED)
def test_a_planted_breach_is_found(rule: StructureRule, path: str, text: str, found: dict[str, int]) -> None:
    assert dict(rule([Source(path, text)])) == found


@pytest.mark.parametrize(
    "text",
    [
        "from medusa import a as m\nclass D(m.C): pass",
        "from .a import C as Other\nclass D(Other[int]): pass",
        "import medusa.a\nclass D(medusa.a.C): pass",
        "def f():\n    from medusa.a import C\n    class D(C): pass",
        "from medusa.c import C\nclass D(C): pass",
    ],
)
def test_inheritance_over_files_is_found(text: str) -> None:
    files = [
        Source("medusa/a.py", CHAIN),
        Source("medusa/b.py", text),
        Source("medusa/c/__init__.py", "from medusa.a import C as C"),
    ]
    assert dict(house_structure.inheritance_is_flat(files)) == {"D": 4}


@pytest.mark.parametrize(
    "text",
    [
        "class C: pass\nclass D(C): pass\nclass E(D): pass",
        "from elsewhere import C\nclass D(C): pass\nclass E(D): pass",
        "from medusa.b import E\nclass E(E): pass",
    ],
)
def test_classes_of_one_name_are_told_apart(text: str) -> None:
    files = [Source("medusa/a.py", CHAIN), Source("medusa/b.py", text)]
    assert dict(house_structure.inheritance_is_flat(files)) == {}


@pytest.mark.parametrize(("count", "found"), [(24, {}), (25, {"native/base": 25})])
def test_a_folder_with_many_files_is_found(count: int, found: dict[str, int]) -> None:
    files = [Source(f"native/base/{number}.c", "") for number in range(count)]
    files.append(Source("native/base/__init__.py", ""))
    assert dict(house_structure.folders_have_few_files(files)) == found


def test_every_rule_has_a_planted_breach() -> None:
    planted = {rule for rule, _, _, found in PLANTED if found}
    assert planted | {house_structure.folders_have_few_files} == set(STRUCTURE)


def test_exceptions_only_shrink() -> None:
    rule = house_structure.nobody_reaches_through
    source = Source("medusa/a.py", "def f(self):\n    self.a.b.c()\n    self.a.b.d()")
    assert house_structure.judged(rule, [source], {"medusa/a.py": 2}) == []
    (more,) = house_structure.judged(rule, [source], {"medusa/a.py": 1})
    assert "2, allowed 1" in more
    (fewer,) = house_structure.judged(rule, [source], {"medusa/a.py": 3})
    assert "lower house_exceptions.toml" in fewer
