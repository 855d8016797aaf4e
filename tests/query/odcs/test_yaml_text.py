"""YAML as plain values with their lines; beside PyYAML's own reading, and what is refused."""

from __future__ import annotations

import builtins

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.errors import ContractError
from medusa.query.odcs.yaml_text import YamlText

TEXT = """\
# a comment
a: 1
b:
  - x: yes
    y: 'no'
  - x: 2026-12-01
    list: [1, 2.5, "3", null, true, -0.0, 010, .5]
c: >
  folded
  text
d: {e: {f: ~}}
"""


def test_values_are_those_of_json():
    assert YamlText(TEXT, "x").root == {
        "a": 1,
        "b": [
            {"x": "yes", "y": "no"},
            {"x": "2026-12-01", "list": [1, 2.5, "3", None, True, -0.0, "010", 0.5]},
        ],
        "c": "folded text\n",
        "d": {"e": {"f": None}},
    }


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a",), 2),
        (("b",), 3),
        (("b", 0), 4),
        (("b", 0, "y"), 5),
        (("b", 1, "x"), 6),
        (("b", 1, "list", 3), 7),
        (("c",), 8),
        (("d", "e", "f"), 11),
        (("d", "missing"), 11),
        (("b", 1, "missing", "more"), 6),
    ],
)
def test_everything_has_its_line(path, line):
    assert YamlText(TEXT, "x.yaml").at(*path) == f"x.yaml line {line}"


texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=10)
numbers = st.integers(-(10**17), 10**17) | st.floats(allow_nan=False, allow_infinity=False)
names = st.from_regex(r"\A[a-z]{1,4}\Z")
plain = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(names, plain, max_size=4), st.booleans())
@settings(deadline=None)
def test_what_pyyaml_writes_reads_back(value, flow):
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    assert YamlText(text, "x").root == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "x line 1: expected fields, got nothing"),
        ("- a", "x line 1: expected fields, got list"),
        ("hello", "x line 1: expected fields, got str"),
        ("a: [1", "x line 1: "),
        ("a: 1\n b: 2", "x line 2: "),
        ("a: 1\nb: 2\na: 3", "x line 3: 'a' a second time"),
        ("a: &b [1]\nc: *b", "an alias"),
        ("a: &b {c: 1}\nd:\n  <<: *b", "x line 3: a key that is no name"),
        ("a: !!python/object/apply:os.system [x]", "x line 1: the tag 'tag:yaml.org,2002:python"),
        ("a: !mine 3", "x line 1: the tag '!mine'"),
        ("? [1]\n: 2", "x line 1: a key that is no name"),
        ("a: 1\n---\nb: 2", "x line 2: "),
        ("a: " + "[" * 40 + "]" * 40, "more than 32 levels"),
        ("a: " + "[" * 5_000, "x"),
        ("a: " + "x" * (1 << 20), "at most 1,048,576"),
        ("a: \x07", "x"),
    ],
)
def test_what_is_refused(text, says):
    with pytest.raises(ContractError) as caught:
        YamlText(text, "x")
    assert says in caught.value.message


def test_without_pyyaml_it_says_what_to_install(monkeypatch):
    found = builtins.__import__

    def gone(name, *arguments):
        if name == "yaml":
            raise ImportError(name)
        return found(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", gone)
    with pytest.raises(ContractError) as caught:
        YamlText("a: 1", "x")
    assert caught.value.hint == "pip install 'medusa-streams[contracts]'"
