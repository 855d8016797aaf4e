"""The line of every field of a TOML text, beside texts whose lines are known."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.nodes.config.toml_lines import toml_lines

TRICKY = '''# [a]
x = """
[not.a.table]
y = 1
"""   # x ends here
"quoted key" = 2

[ a . "b.c" ]   # [d]
list = [
  "[e]",  # f = 1
  "g",
]
h.i = 3
j = { k = 1, l = { m = 2 } }
n = \'\'\'
h = 1\'\'\'
[[o]]
p = 1
[[o]]
q = 2

[a]
z = 2026-12-01 10:00:00Z
'''


def test_comments_texts_and_brackets_are_not_taken_for_fields():
    assert toml_lines(TRICKY) == {
        ("x",): 2,
        ("quoted key",): 6,
        ("a",): 8,
        ("a", "b.c"): 8,
        ("a", "b.c", "list"): 9,
        ("a", "b.c", "h"): 13,
        ("a", "b.c", "h", "i"): 13,
        ("a", "b.c", "j"): 14,
        ("a", "b.c", "j", "k"): 14,
        ("a", "b.c", "j", "l"): 14,
        ("a", "b.c", "j", "l", "m"): 14,
        ("a", "b.c", "n"): 15,
        ("o",): 17,
        ("o", "p"): 18,
        ("o", "q"): 20,
        ("a", "z"): 23,
    }


def test_lines_may_end_as_on_windows():
    assert toml_lines(TRICKY.replace("\n", "\r\n")) == toml_lines(TRICKY)


def test_what_is_no_toml_is_refused():
    with pytest.raises(tomllib.TOMLDecodeError):
        toml_lines("a = ")


values = st.sampled_from(['"x"', "1", '"""\n[a]\n\n"""', "[\n1,\n\n2]", "{ a = 1 }", "'''\nb = 1\n'''"])
gaps = st.sampled_from(["", "\n", "# c = 1\n", "\n  # [d]\n"])


@given(st.lists(st.tuples(values, gaps, st.booleans()), max_size=8))
@settings(deadline=None)
def test_lines_are_those_where_they_were_written(fields):
    text, table = "", ()
    expected = {}
    for number, (value, gap, opens) in enumerate(fields):
        text += gap
        if opens:
            table = (f"t{number}",)
            text += f"[t{number}]\n"
            expected[table] = text.count("\n")
        expected[*table, f"k{number}"] = text.count("\n") + 1
        text += f"k{number} = {value}\n"
    assert {path: line for path, line in toml_lines(text).items() if path[-1] != "a"} == expected
