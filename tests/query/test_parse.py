"""SQL text to trees: what each piece of syntax gives, what is refused and where, and never a crash."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medusa.errors import QueryError
from medusa.query.expressions.expression import Call, Case, Cast, Column, Expression, Literal
from medusa.query.expressions.functions import FUNCTIONS
from medusa.query.expressions.parse import parse, parse_aggregate
from medusa.query.expressions.tree import DEPTH_MAX, measure
from medusa.query.sql_names import FUNCTION_NAMES

A, B, C = Column("a"), Column("b"), Column("c")
S = "timestamp[us, UTC]"


def integer(value: int) -> Literal:
    return Literal("int64", value)


def text(value: str) -> Literal:
    return Literal("utf8", value)


def call(function: str, *args: Expression) -> Call:
    return Call(function, args)


MEANINGS = {
    # columns
    "a": A,
    '"a"': A,
    '"weird name"': Column("weird name"),
    '"in.quotes"': Column("in.quotes"),
    '"say ""hi"""': Column('say "hi"'),
    "Ab": Column("Ab"),
    "größe": Column("größe"),
    "left.x": Column("left.x"),
    "right.x": Column("right.x"),
    "date": Column("date"),
    "timestamp": Column("timestamp"),
    "session": Column("session"),
    "int8": Column("int8"),
    "current_date": Column("current_date"),
    "(a)": A,
    "((a))": A,
    "a -- a comment": A,
    "/* one */ a": A,
    "tuple_time": call("tuple_time"),
    "tuple_time()": call("tuple_time"),
    '"tuple_time"': Column("tuple_time"),
    # constants
    "0": integer(0),
    "1_000": integer(1000),
    "00012": integer(12),
    "9223372036854775807": integer(2**63 - 1),
    "9223372036854775808": Literal("uint64", 2**63),
    "18446744073709551615": Literal("uint64", 2**64 - 1),
    "-9223372036854775808": integer(-(2**63)),
    "-5": integer(-5),
    "- -5": integer(5),
    "-(5)": integer(-5),
    "+5": integer(5),
    "0.621": Literal("float64", 0.621),
    ".5": Literal("float64", 0.5),
    "5.": Literal("float64", 5.0),
    "1e3": Literal("float64", 1000.0),
    "1E-3": Literal("float64", 0.001),
    "-2.5": Literal("float64", -2.5),
    "'text'": text("text"),
    "'it''s'": text("it's"),
    "''": text(""),
    "'größe ✓'": text("größe ✓"),
    r"'back\slash'": text(r"back\slash"),
    "true": Literal("bool", True),
    "FALSE": Literal("bool", False),
    "NULL": Literal("null", None),
    "DATE '1970-01-02'": Literal("date32", 1),
    "TIMESTAMP '1970-01-01 00:00:01'": Literal(S, 1_000_000),
    "TIMESTAMP '1970-01-01T01:00:00+01:00'": Literal(S, 0),
    "TIMESTAMPTZ '1970-01-01'": Literal(S, 0),
    "CAST('1970-01-02' AS DATE)": Literal("date32", 1),
    "INTERVAL '5' MINUTE": Literal("duration[us]", 300_000_000),
    "INTERVAL 5 MINUTE": Literal("duration[us]", 300_000_000),
    "INTERVAL '5 minutes'": Literal("duration[us]", 300_000_000),
    "INTERVAL '1.5 s'": Literal("duration[us]", 1_500_000),
    "INTERVAL '100ms'": Literal("duration[us]", 100_000),
    "INTERVAL '1h 30min'": Literal("duration[us]", 5_400_000_000),
    "-INTERVAL '1s'": Literal("duration[us]", -1_000_000),
    # operators
    "a = b": call("eq", A, B),
    "a == b": call("eq", A, B),
    "a <> b": call("ne", A, B),
    "a != b": call("ne", A, B),
    "a < b": call("lt", A, B),
    "a <= b": call("le", A, B),
    "a > b": call("gt", A, B),
    "a >= b": call("ge", A, B),
    "a IS DISTINCT FROM b": call("is_distinct_from", A, B),
    "a IS NOT DISTINCT FROM b": call("not", call("is_distinct_from", A, B)),
    "a - b - c": call("sub", call("sub", A, B), C),
    "a / b": call("div", A, B),
    "a // b": call("floordiv", A, B),
    "a % b": call("mod", A, B),
    "a ** b": call("power", A, B),
    "a ^ b": call("power", A, B),
    "a ** b ** c": call("power", call("power", A, B), C),
    "-a": call("neg", A),
    "+a": A,
    "NOT a": call("not", A),
    "NOT NOT a": call("not", call("not", A)),
    "a IS NULL": call("is_null", A),
    "a ISNULL": call("is_null", A),
    "a IS NOT NULL": call("is_not_null", A),
    "NOT (a IS NULL)": call("not", call("is_null", A)),
    "a IS TRUE": call("not", call("is_distinct_from", A, Literal("bool", True))),
    "a IS NOT FALSE": call("not", call("not", call("is_distinct_from", A, Literal("bool", False)))),
    "(NOT a) || b": call("concat", call("not", A), B),
    "a BETWEEN 1 AND 2": call("and", call("ge", A, integer(1)), call("le", A, integer(2))),
    "a NOT BETWEEN b AND c": call("not", call("and", call("ge", A, B), call("le", A, C))),
    "a IN (1, -2)": call("in", A, integer(1), integer(-2)),
    "a NOT IN ('x')": call("not", call("in", A, text("x"))),
    "a LIKE 'x%'": call("like", A, text("x%")),
    "a NOT LIKE 'x_'": call("not", call("like", A, text("x_"))),
    # chains
    "a AND b AND c": call("and", A, B, C),
    "a OR b OR c": call("or", A, B, C),
    "a + b + c": call("add", A, B, C),
    "a * b * c": call("mul", A, B, C),
    "a || b || c": call("concat", A, B, C),
    "(a + b) + c": call("add", A, B, C),
    "a + (b + c)": call("add", A, call("add", B, C)),
    "a + b - c + a": call("add", call("sub", call("add", A, B), C), A),
    "concat(a, b) || c": call("concat", A, B, C),
    # precedence
    "a + b * c": call("add", A, call("mul", B, C)),
    "a OR b AND NOT c": call("or", A, call("and", B, call("not", C))),
    "a = b AND c": call("and", call("eq", A, B), C),
    "a || b = c": call("eq", call("concat", A, B), C),
    "-a ** 2": call("power", call("neg", A), integer(2)),
    "NOT a = b": call("not", call("eq", A, B)),
    # CASE, CAST, functions
    "CASE WHEN a THEN 1 END": Case(((A, integer(1)),)),
    "CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END": Case(((A, integer(1)), (B, integer(2))), integer(3)),
    "CASE a WHEN 1 THEN b ELSE c END": Case(((call("eq", A, integer(1)), B),), C),
    "CAST(a AS int8)": Cast(A, "int8"),
    "a::int16": Cast(A, "int16"),
    "a::uint64": Cast(A, "uint64"),
    "a::BIGINT": Cast(A, "int64"),
    "a::double": Cast(A, "float64"),
    "a::float32": Cast(A, "float32"),
    "a::utf8": Cast(A, "utf8"),
    "a::varchar": Cast(A, "utf8"),
    "a::decimal(10, 2)": Cast(A, "decimal128(10, 2)"),
    "a::decimal128(10, 2)": Cast(A, "decimal128(10, 2)"),
    "a::timestamp": Cast(A, S),
    "a::timestamp[us, UTC]": Cast(A, S),
    "CAST(a AS timestamp[us, UTC])": Cast(A, S),
    "a::duration[us]": Cast(A, "duration[us]"),
    "a::interval": Cast(A, "duration[us]"),
    "a::bool": Cast(A, "bool"),
    "a::binary": Cast(A, "binary"),
    "a::date32": Cast(A, "date32"),
    "CAST(NULL AS int64)": Cast(Literal("null", None), "int64"),
    "LOWER(a)": call("lower", A),
    "pow(a, 2)": call("power", A, integer(2)),
    "mod(a, b)": call("mod", A, B),
    "ceiling(a)": call("ceil", A),
    "substring(a, 1, 2)": call("substr", A, integer(1), integer(2)),
    "date_trunc('hour', a)": call("date_trunc", text("hour"), A),
    "EXTRACT(year FROM a)": call("year", A),
    "coalesce(a, b, c)": call("coalesce", A, B, C),
}


@pytest.mark.parametrize("written", MEANINGS)
def test_what_syntax_means(written: str) -> None:
    assert parse(written) == MEANINGS[written]


def test_every_function_can_be_written() -> None:
    operators = {
        *("eq", "ne", "lt", "le", "gt", "ge", "is_distinct_from", "and", "or", "not", "is_null"),
        *("is_not_null", "add", "sub", "mul", "div", "floordiv", "neg", "in", "like"),
    }
    assert set(FUNCTION_NAMES.values()) | operators == set(FUNCTIONS)
    for name, function in FUNCTION_NAMES.items():
        if function != "tuple_time":
            assert parse(f"{name}(a, b)") == call(function, A, B)


REFUSED = {
    "": "the expression is empty",
    "  -- only a comment": "the expression is empty",
    "a +": "something is missing near '+' at character 3",
    "a b": "Unexpected token near 'b' at character 3",
    "a AS b": "Unexpected token near 'AS' at character 3",
    "(a": "Expecting ) near 'a' at character 2",
    "a)": "Unexpected token near ')' at character 2",
    "'abc": "Missing '",
    "a; b": "unexpected ';' at character 2",
    "a, b": "Unexpected token near ',' at character 2",
    "SELECT 1": "Unexpected token near 'SELECT' at character 1",
    "DROP TABLE x": "Unexpected token near 'DROP' at character 1",
    "(SELECT 1)": "a query in brackets is not supported",
    "a IN (SELECT 1)": "IN with QUERY is not supported at character 1",
    "EXISTS (SELECT 1)": "EXISTS is not supported",
    "nosuch(a)": "there is no function 'nosuch' at character 1",
    "1 + lowre(a)": "there is no function 'lowre' at character 5 of '1 + lowre(a)' (did you mean 'lower'?)",
    "log(a)": "(ln(x) is the natural, log10(x) the decimal logarithm)",
    "now()": "(a query knows no clock",
    "sum(a)": "(aggregates stand in window(...).aggregate(...))",
    "if(a, b, c)": "CASE WHEN condition THEN a ELSE b END",
    "try_cast(a AS int)": "there is no function 'try_cast'",
    '"lower"(a)': "the name of a function stands without quotes",
    "sum(a) OVER ()": "OVER is not supported",
    "count(a) FILTER (WHERE b)": "FILTER is not supported",
    "lower(DISTINCT a)": "DISTINCT is not supported",
    "cars.speed": "cars.speed: a name with a dot is for the two sides of a join at character 1",
    "a.b.c": "is not supported at character 1",
    "a.lower(b)": "a name with a dot is not supported",
    "*": "* is not supported",
    "left.*": "a column must be named",
    "a[1]": "an index in brackets is not supported",
    "[1, 2]": "a list is not supported",
    "(1, 2)": "a list in brackets is not supported",
    "{'a': 1}": "a struct is not supported",
    "$1": "a parameter is not supported",
    "?": "a parameter is not supported",
    "a ILIKE 'x'": "ILIKE (write lower(x) LIKE) is not supported",
    "a ~ 'x'": "regexp_matches",
    "~a": "~ (write NOT) is not supported",
    "a & b": "is not supported",
    "a -> b": "-> is not supported",
    "a SIMILAR TO 'x'": "is not supported",
    "a LIKE 'x' ESCAPE '!'": "ESCAPE is not supported",
    "a COLLATE x": "COLLATE is not supported",
    "a AT TIME ZONE 'utc'": "is not supported",
    "a BETWEEN SYMMETRIC 1 AND 2": "BETWEEN with SYMMETRIC is not supported",
    "a IN ()": "IN needs at least one value",
    "a IN (1, b)": "IN takes constants only",
    "a + NOT b": "NOT and IS NOT NULL need brackets here",
    "NOT a IS NOT NULL || b": "NOT and IS NOT NULL need brackets here",
    "a IS 1": "IS takes NULL, TRUE or FALSE",
    "a IS nan": "is_nan(x)",
    "'a' 'b'": "text directly after text (write ||)",
    "a::money": "type 'money' is not supported",
    "a::hugeint": "can't cast to INT128",
    "a::int[]": "can't cast to",
    "a::struct(b int)": "can't cast to",
    "a::foo": "cast at character 1 of 'a::foo': type 'foo' is not supported",
    "a::decimal(50, 2)": "1 to 38 digits",
    "DATE 'today'": "'today' is no date",
    "TIMESTAMP 'now'": "'now' is no timestamp",
    "INTERVAL '1' MONTH": "is no duration",
    "INTERVAL a DAY": "an INTERVAL is a constant",
    "EXTRACT(century FROM a)": "can't EXTRACT 'century'",
    "1e999": "the number 1e999 is too large",
    "18446744073709551616": "is too large",
    "1e": "'1e' is no number",
    "CASE WHEN a THEN b": "Expected END after CASE",
    "CASE END": "",
    "e'a'": "is not supported",
    "$$a$$": "is not supported",
    "x -> x + 1": "is not supported",
    "'\ud800'": "is no utf8 literal",
}


@pytest.mark.parametrize("written", REFUSED)
def test_what_is_refused_and_where(written: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(written, box="filter 'fast'")
    assert str(caught.value).startswith("filter 'fast': ")
    assert REFUSED[written] in str(caught.value)


LONG = {
    "a" * 70_000: "at most 64 KiB of text",
    "ä" * 40_000: "at most 64 KiB of text",
    "a+" * 5_500 + "a": "at most 10,000 words",
    "(" * 33 + "a" + ")" * 33: "more than 32 brackets and CASEs inside each other at character 33",
    "abs(" * 33 + "a" + ")" * 33: "more than 32 brackets and CASEs inside each other",
    "CASE WHEN a THEN " * 33 + "1" + " END" * 33: "more than 32 brackets and CASEs",
    "NOT " * 33 + "a": "more than 32 operators in a row at character 129",
    "-" + " -" * 32 + "a": "more than 32 operators in a row",
    "a - " * 70 + "a": "nested more than 64 deep",
    "a ** -" * 3_000 + "a": "nested more than 64 deep",
    "a = NOT " * 2_000 + "a": "nested too deeply",
    "CASE CASE "
    + "a "
    + "WHEN 1 THEN 2 " * 300
    + "END "
    + "WHEN 1 THEN 2 " * 300
    + "END": "CASE is too long",
    "[" * 5_000: "more than 32 brackets",
}


@pytest.mark.parametrize("written", LONG, ids=range(len(LONG)))
def test_limits(written: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(written, box="filter 'fast'")
    assert LONG[written] in str(caught.value)
    assert len(str(caught.value)) < 400


def test_just_within_the_limits() -> None:
    assert parse("(" * 32 + "a" + ")" * 32) == A
    assert measure(parse("NOT " * 32 + "a")) == (33, 33)
    assert measure(parse("a - " * (DEPTH_MAX - 1) + "a"))[0] == DEPTH_MAX
    for joint in (" AND ", " + ", " * ", " || "):
        chain = parse(joint.join(["a"] * 4_000))
        assert isinstance(chain, Call)
        assert chain.args == (A,) * 4_000
    deepest = parse("abs(" * 32 + "a" + ")" * 32)
    assert measure(deepest) == (33, 33)


def test_aggregates_as_text() -> None:
    assert parse_aggregate("count(*)") == ("count", None, None)
    assert parse_aggregate("COUNT()") == ("count", None, None)
    assert parse_aggregate("sum(a * b)") == ("sum", call("mul", A, B), None)
    assert parse_aggregate("count(a)") == ("count", A, None)
    assert parse_aggregate("count(DISTINCT a)") == ("count_distinct", A, None)
    assert parse_aggregate("count_distinct(a)") == ("count_distinct", A, None)
    assert parse_aggregate("quantile(a, 0.9)") == ("quantile", A, 0.9)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("a", "expected one aggregate call"),
        ("sum(a) + 1", "expected one aggregate call"),
        ("sum(a, b)", "sum takes one argument, got 2"),
        ("sum()", "sum takes one argument, got 0"),
        ("sum(DISTINCT a)", "DISTINCT is for count(DISTINCT column) only"),
        ("count(DISTINCT a, b)", "DISTINCT is for count(DISTINCT column) only"),
        ("sum(*)", "* is not supported"),
        ("sum(a) OVER ()", "expected one aggregate call"),
        ('"sum"(a)', "expected one aggregate call"),
    ],
)
def test_what_is_no_aggregate(written: str, says: str) -> None:
    with pytest.raises(QueryError, match=r"^aggregate") as caught:
        parse_aggregate(written)
    assert says in str(caught.value)


# -- anything at all: a tree, or a QueryError -----------------------------------------------------

WORDS = [
    *("a", "b", '"q"', "left.x", "1", "2.5", "'t'", "NULL", "TRUE", "-", "+", "*", "/", "//", "%", "**"),
    *("||", "=", "<>", "<", ">=", "(", ")", "[", "]", "{", "}", ",", ".", ":", "::", ";", "AND", "OR", "NOT"),
    *("IS", "IN", "BETWEEN", "LIKE", "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "AS", "int8", "lower"),
    *("count", "DISTINCT", "FROM", "SELECT", "WHERE", "OVER", "INTERVAL", "DATE", "TIMESTAMP", "EXTRACT"),
    *(
        "year",
        "->",
        "=>",
        ":=",
        "?",
        "$1",
        "@",
        "#",
        "~",
        "!",
        "^",
        "&",
        "|",
        "'",
        '"',
        "`",
        "--",
        "/*",
        "*/",
    ),
    *("WITH", "VALUES", "INSERT", "SET", "e'x'", "x'00'", "$$", "LAMBDA", "ROW", "ARRAY", "MAP", "STRUCT"),
    *(
        "PIVOT",
        "UNNEST",
        "ANY",
        "ALL",
        "EXISTS",
        "COLLATE",
        "AT",
        "TIME",
        "ZONE",
        "FILTER",
        "\x00",
        "\n",
        "ä",
    ),
]


def tree_or_error(written: str) -> None:
    try:
        told = measure(parse(written))
    except QueryError as error:
        told = str(error)
    assert told[0] <= DEPTH_MAX if isinstance(told, tuple) else told.startswith("expression: ")


@settings(max_examples=400)
@given(st.lists(st.sampled_from(WORDS), max_size=25))
def test_any_words_give_a_tree_or_an_error(words: list[str]) -> None:
    tree_or_error(" ".join(words))


@settings(max_examples=200)
@given(st.text(max_size=60))
def test_any_text_gives_a_tree_or_an_error(written: str) -> None:
    tree_or_error(written)


def test_damaged_expressions_give_a_tree_or_an_error() -> None:
    random_ = random.Random(7)
    for _ in range(1_500):
        words = re.findall(r"\w+|\W", random_.choice(list(MEANINGS)) + " " + random_.choice(list(MEANINGS)))
        for _ in range(random_.randint(1, 3)):
            place = random_.randrange(len(words))
            match random_.randrange(4):
                case 0 if len(words) > 1:
                    del words[place]
                case 1:
                    words.insert(place, random_.choice(WORDS))
                case 2:
                    other = random_.randrange(len(words))
                    words[place], words[other] = words[other], words[place]
                case _:
                    words.insert(place, words[random_.randrange(len(words))])
        tree_or_error("".join(words))
