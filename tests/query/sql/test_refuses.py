"""What a statement may not say: each error names the place, the reason and the nearest thing there is."""

# ruff: noqa: E501
from __future__ import annotations

import pytest

import medusa as md

CARS = {"ts": "timestamp", "vid": "int64", "seg": "int32", "speed": "float64", "name": "utf8"}
TOLLS = {"ts": "timestamp", "car": "int64", "fee": "float64", "seg": "int32"}
W = "TUMBLE(ts, INTERVAL '1' MINUTE)"
ON = "c.vid = t.car AND abs(c.ts - t.ts) <= INTERVAL '5' SECOND"

# Text, with what the caret stands under in «»; part of the message; part of the hint.
REFUSED = [
    # names
    ("SELECT «sped» FROM cars", "no column 'sped' in cars", "'speed'"),
    ("SELECT vid FROM «car»", "no table 'car'", "'cars'"),
    ("SELECT «x».vid FROM cars c", "no table 'x'", "there is: c"),
    ("SELECT «cars».vid FROM cars c", "no table 'cars'", "there is: c"),
    ("SELECT c.«sped»  FROM cars c".replace("c.«sped»", "«c.sped»"), "'sped'", "'speed'"),
    ("SELECT «Speed» FROM cars", "no column 'Speed'", "'speed'"),
    (f"SELECT «seg» FROM cars c JOIN tolls t ON {ON}", "'seg' is in c and t", "c.seg"),
    ("SELECT vid, «vid» FROM cars", "two columns are called 'vid'", "AS"),
    ("SELECT *, «speed» AS name FROM cars", "called 'name'", "AS"),
    ("WITH cars AS (SELECT 1) SELECT * FROM cars".replace("cars AS", "«cars» AS", 1), "already", ""),
    ("WITH a AS (SELECT * FROM «a») SELECT * FROM a", "no table 'a'", "there is: cars, tolls"),
    (f"SELECT * FROM cars c JOIN «tolls c» ON {ON}", "two tables are called 'c'", "AS b"),
    ("SELECT «a.b.c» FROM cars", "a column is named x or table.x", ""),
    ("SELECT * FROM «main».cars", "a name with a dot in FROM is not supported", "one name"),
    ("SELECT «window_start» FROM cars", "no column 'window_start'", "TUMBLE"),
    ("SELECT * EXCLUDE («x») FROM cars", "no column 'x'", ""),
    # expressions
    ("SELECT «name + 1» FROM cars", "expected two numbers", "CAST"),
    ("SELECT * FROM cars WHERE «speed»", "expected bool here, got float64", "x > 0"),
    ("SELECT * FROM cars WHERE «frobnicate(1»)", "no function 'frobnicate'", ""),
    ("SELECT * FROM cars WHERE «log(speed») > 1", "no function 'log'", "ln(x)"),
    (
        "SELECT * FROM cars WHERE «count»(*) > 1".replace("«count»(*)", "«count(*»)"),
        "can't stand in WHERE",
        "HAVING",
    ),
    (
        "SELECT * FROM cars WHERE «vid IN (SELECT car» FROM tolls)".replace(
            "car» FROM tolls", "car FROM tolls»"
        ),
        "IN (SELECT ...) is not supported",
        "SEMI JOIN",
    ),
    ("SELECT * FROM cars WHERE EXISTS (SELECT «car FROM tolls»)", "EXISTS is not supported", "SEMI JOIN"),
    ("SELECT (SELECT «car FROM tolls») FROM cars", "a query inside an expression", "JOIN"),
    (
        "SELECT «vid»[1] FROM cars".replace("«vid»[1]", "«vid»[1]"),
        "an index in brackets is not supported",
        "",
    ),
    ("SELECT CAST(«vid» AS frob) FROM cars", "type 'frob' is not supported", ""),
    (
        "SELECT vid FROM cars WHERE «vid» = $1",
        "a parameter is not supported",
        "the value",
    ),
    # clauses
    ("SELECT vid FROM cars «ORDER BY» vid", "ORDER BY is not supported", "sort what you have taken"),
    ("SELECT vid FROM cars «LIMIT» 3", "LIMIT is not supported", "no end"),
    ("SELECT vid FROM cars «OFFSET» 3", "OFFSET is not supported", "filter by time"),
    ("SELECT «DISTINCT» vid FROM cars", "SELECT DISTINCT is not supported", "GROUP BY"),
    ("SELECT «row_number() OVER (PARTITION BY vid») FROM cars", "OVER is not supported", "running"),
    ("SELECT vid FROM cars «UNION» SELECT car FROM tolls", "UNION without ALL", "UNION ALL"),
    ("SELECT vid FROM cars «EXCEPT» SELECT car FROM tolls", "EXCEPT is not supported", "ANTI JOIN"),
    ("SELECT vid FROM cars «INTERSECT» SELECT car FROM tolls", "INTERSECT is not supported", "SEMI JOIN"),
    ("WITH «RECURSIVE» a AS (SELECT * FROM cars) SELECT * FROM a", "RECURSIVE is not supported", ""),
    (
        "SELECT * FROM cars «TABLESAMPLE» 10%",
        "TABLESAMPLE is not supported",
        "WHERE",
    ),
    ("SELECT vid, speed FROM cars UNION ALL SELECT «car FROM tolls»", "2 columns above, 1 here", ""),
    (
        "SELECT vid FROM cars UNION ALL SELECT «name FROM cars»",
        "column 'vid' is int64 above and utf8 here",
        "CAST",
    ),
    (
        "CREATE TABLE «x» (a INT)".replace("«x» (a INT)", "«x (a» INT)"),
        "CREATE TABLE is not supported",
        "CREATE VIEW",
    ),
    ("DELETE FROM «cars»", "DELETE is not supported", "SELECT"),
    ("SELECT vid FROM cars; SELECT «seg FROM cars»", "second SELECT has no sink", "INSERT INTO"),
    (
        "CREATE VIEW x AS SELECT «vid FROM cars»".replace(
            "x AS SELECT «vid FROM cars»", "«x AS SELECT vid FROM cars»"
        ),
        "nothing leaves the query",
        "SELECT",
    ),
    ("SELECT «1»", "SELECT needs FROM", ""),
    ("SELECT vid FROM cars HAVING «vid > 1»", "HAVING needs GROUP BY", "WHERE"),
    # windows
    ("SELECT seg, count(*) FROM cars GROUP BY «seg»", "GROUP BY without a window", "TUMBLE"),
    ("SELECT «count(*»)  FROM cars", "an aggregate without a window", "TUMBLE"),
    (
        "SELECT count(*) FROM cars GROUP BY TUMBLE(«speed», INTERVAL '1' MINUTE)",
        "'speed' is not the time",
        "ts and tuple_time",
    ),
    ("SELECT count(*) FROM cars GROUP BY TUMBLE(«sp», INTERVAL '1' MINUTE)", "no column 'sp'", ""),
    ("SELECT count(*) FROM cars GROUP BY «TUMBLE(ts»)", "takes other arguments", "TUMBLE(ts, INTERVAL"),
    ("SELECT count(*) FROM cars GROUP BY TUMBLE(ts, «5»)", "expected an INTERVAL", "TUMBLE(ts, INTERVAL"),
    ("SELECT count(*) FROM cars GROUP BY TUMBLE(ts, INTERVAL «'1'» MONTH)", "is no duration", ""),
    (
        "SELECT count(*) FROM cars GROUP BY «HOP(ts, INTERVAL '5' MINUTE, INTERVAL '1'» MINUTE)",
        "less often",
        "how often one starts",
    ),
    (
        f"SELECT count(*) FROM cars GROUP BY {W}, «TUMBLE(ts, INTERVAL '2'» MINUTE)",
        "GROUP BY has one window",
        "around",
    ),
    (
        "SELECT count(*) FROM cars GROUP BY «time_bucket(INTERVAL '7' DAY, ts»)",
        "counts from Monday",
        "TUMBLE",
    ),
    (f"SELECT «vid», count(*) FROM cars GROUP BY seg, {W}", "vid is neither a key", "max(vid)"),
    (f"SELECT vid + «seg», count(*) FROM cars GROUP BY vid, {W}", "seg is neither a key", ""),
    (
        f"SELECT «*», count(*) FROM cars GROUP BY seg, {W}",
        "* can't stand beside GROUP BY",
        "name the columns",
    ),
    (f"SELECT sum(«count(*»)) FROM cars GROUP BY {W}", "can't stand in an aggregate", ""),
    (f"SELECT «sum(vid, 1»)  FROM cars GROUP BY {W}", "takes one argument, got 2", "sum(x)"),
    (f"SELECT «sum(DISTINCT vid»)  FROM cars GROUP BY {W}", "sum(DISTINCT ...)", "count(DISTINCT x)"),
    (
        f"SELECT sum(vid) AS s FROM cars GROUP BY «cube(seg»), {W}".replace("cube", "CUBE").replace(
            "«CUBE(seg»)", "CUBE(«seg»)"
        ),
        "CUBE",
        "UNION ALL",
    ),
    (
        f"SELECT sum(«name») FROM cars GROUP BY {W}".replace("sum(«name»)", "sum(name) AS s").replace(
            W, "«" + W.replace("1' MINUTE)", "1'» MINUTE)")
        ),
        "sum takes integers",
        "",
    ),
    (f"SELECT «TUMBLE_START(ts, INTERVAL '2'» MINUTE) FROM cars GROUP BY {W}", "differs from the window", ""),
    (f"SELECT count(*) AS n FROM cars GROUP BY {W} HAVING «n»", "expected bool here", "x > 0"),
    (
        "SELECT * FROM «cars_»".replace("cars_", "TUMBLE(cars, ts, INTERVAL '1'") + " MINUTE)",
        "needs GROUP BY window_start",
        "",
    ),
    ("SELECT * FROM «CUMULATE(cars, ts»)", "no table function 'CUMULATE'", "use HOP"),
    ("SELECT count(*) FROM cars GROUP BY «7»", "no item 7", ""),
    (
        "SELECT count(*) FROM cars c JOIN tolls t ON " + ON + " GROUP BY TUMBLE(«c.ts», INTERVAL '1' MINUTE)",
        "'ts' is not the time",
        "tuple_time",
    ),
    (
        "SELECT * FROM cars QUALIFY «ROW_NUMBER() OVER (PARTITION BY seg ORDER BY vid») < 3",
        "needs a window in its PARTITION BY",
        "QUALIFY ROW_NUMBER()",
    ),
    (
        "SELECT * FROM cars QUALIFY «rank() OVER (PARTITION BY seg) < 3»",
        "takes the rank of a row",
        "ROW_NUMBER()",
    ),
    (
        "SELECT * FROM cars QUALIFY «ROW_NUMBER() OVER (PARTITION BY TUMBLE(ts, '1 s'»)) < 3",
        "one ORDER BY",
        "",
    ),
    (
        "SELECT * FROM (SELECT *, «ROW_NUMBER() OVER (PARTITION BY seg») AS r FROM cars)",
        "OVER is not",
        "QUALIFY",
    ),
    # joins
    ("SELECT * FROM cars c JOIN tolls t ON «c.vid = t.car»", "needs a bound on time", "BETWEEN"),
    (
        "SELECT * FROM cars c JOIN tolls t ON «c.vid = t.car AND c.ts >= t.ts»",
        "needs the other bound on time",
        "BETWEEN",
    ),
    (
        "SELECT * FROM cars c JOIN tolls t ON «abs(c.ts - t.ts) <= INTERVAL '1'» SECOND",
        "at least one pair of equal keys",
        "",
    ),
    ("SELECT * FROM cars, «tolls»", "a join without ON", "BETWEEN"),
    ("SELECT * FROM cars CROSS JOIN «tolls»", "CROSS JOIN is not supported", "BETWEEN"),
    ("SELECT * FROM cars NATURAL JOIN «tolls»", "NATURAL JOIN is not supported", "keys"),
    (
        "SELECT * FROM cars c JOIN tolls t ON «c.vid + 1 = t.car» AND abs(c.ts - t.ts) <= INTERVAL '1' SECOND",
        "a key of a join is a column",
        "query of its own",
    ),
    (
        "SELECT * FROM cars c JOIN tolls t ON c.vid = t.car AND «ts» > t.ts",
        "'ts' is in both tables",
        "say which",
    ),
    (
        "SELECT * FROM cars c JOIN tolls t ON c.vid = t.car AND «tuple_time» > t.ts",
        "tuple_time can't stand in ON",
        "",
    ),
    (
        "SELECT * FROM cars c ASOF JOIN tolls t ON «c.vid = t.car AND c.ts > t.ts»",
        "needs a.ts >= b.ts",
        "ASOF JOIN b",
    ),
    (
        "SELECT * FROM cars c ASOF RIGHT JOIN «tolls t» ON c.vid = t.car AND c.ts >= t.ts",
        "ASOF RIGHT JOIN",
        "ASOF LEFT JOIN",
    ),
    # syntax
    ("SELECT FROM «WHERE» x", "can't read the query", ""),
    ("SELECT vid\nFROM cars\nWHERE speed > «AND» 3", "can't read the query", ""),
    ("SELECT vid FROM cars EMIT «CHANGES»", "can't read the query", ""),
    ("«SELCT» vid FROM cars", "Unexpected token near 'SELCT'", "did you mean 'SELECT'?"),
    ("«selct» vid, speed FROM cars", "Unexpected token near 'selct'", "did you mean 'SELECT'?"),
    ("SELECT vid «FORM» cars", "Unexpected token near 'FORM'", "did you mean 'FROM'?"),
    ("SELECT vid, speed «FORM» cars WHERE speed > 1", "near 'FORM'", "did you mean 'FROM'?"),
    ("SELECT vid FROM cars «WEHRE» speed > 1", "near 'WEHRE'", "did you mean 'WHERE'?"),
    ("SELECT vid FROM cars\n«GRUOP» BY vid", "near 'GRUOP'", "did you mean 'GROUP'?"),
    ("SELECT vid FROM orders «)»", "can't read the query", ""),
]


def by_sql(text: str) -> md.Query:
    return md.sql(text, cars=CARS, tolls=TOLLS)


@pytest.mark.parametrize(("text", "why", "hint"), REFUSED)
def test_refused_with_its_place_and_the_nearest_thing(text: str, why: str, hint: str) -> None:
    start, end = text.index("«"), text.index("»") - 1
    plain = text.replace("«", "").replace("»", "")
    with pytest.raises(md.QueryError) as caught:
        by_sql(plain)
    error = caught.value
    assert why in error.message
    assert hint in error.hint
    line = plain.count("\n", 0, start) + 1
    column = start - (plain.rfind("\n", 0, start) + 1) + 1
    head, shown, caret = error.message.split("\n")
    assert head.endswith(f"(line {line}, column {column})"), error.message
    assert shown[caret.index("^") : caret.rindex("^") + 1] == plain[start:end], error.message
    assert (error.line, error.column) == (line, column)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        (" -- nothing", "empty"),
        (";;", "empty"),
        ("SELECT " + "(" * 40 + "1" + ")" * 40 + " FROM cars", "more than 32 brackets"),
        ("SELECT " + "- " * 40 + "1 FROM cars", "more than 32 operators in a row"),
        ("SELECT " + "vid + " * 5_000 + "1 FROM cars", "at most 10,000 words"),
        ("SELECT '" + "x" * 70_000 + "' FROM cars", "at most 64 KiB"),
        ("SELECT 'x FROM cars", "can't read"),
    ],
)
def test_limits(text: str, why: str) -> None:
    with pytest.raises(md.QueryError, match=why):
        by_sql(text)


@pytest.mark.parametrize("text", [None, 3, b"SELECT 1"])
def test_a_text_is_a_text(text: object) -> None:
    with pytest.raises(md.QueryError, match="expected the text of a query"):
        md.sql(text)  # type: ignore[arg-type]


def test_long_chains_are_no_deep_queries() -> None:
    by_sql("SELECT * FROM cars WHERE " + " OR ".join(f"vid = {n}" for n in range(2_000)))
    by_sql(" UNION ALL ".join(["SELECT vid FROM cars"] * 60))
    with pytest.raises(md.QueryError) as caught:
        by_sql(" UNION ALL ".join(["SELECT vid FROM cars"] * 2_000))
    assert caught.value.code == "query.limit"


def test_a_long_line_is_shown_around_the_place() -> None:
    with pytest.raises(md.QueryError) as caught:
        by_sql("SELECT " + "vid + " * 200 + "sped FROM cars")
    _, shown, caret = caught.value.message.split("\n")
    assert len(shown) < 110
    assert shown[caret.index("^") : caret.rindex("^") + 1] == "sped"


def test_two_columns_that_may_be_the_time_of_a_bare_schema() -> None:
    text = "SELECT * FROM t a JOIN t b ON a.k = b.k AND a.x > b.y"
    with pytest.raises(md.QueryError, match="x and y both stand where the time") as caught:
        md.sql(text, t={"x": "timestamp", "y": "timestamp", "k": "int64"})
    assert "md.source(schema, time='x')" in caught.value.hint


def test_an_option_that_a_source_does_not_have() -> None:
    with pytest.raises(md.QueryError, match="no option 'slak'") as caught:
        md.source(CARS, slak="2s")
    assert "slack" in caught.value.hint


def test_rows_without_time_have_no_windows() -> None:
    with pytest.raises(md.QueryError, match="the rows have no time here"):
        md.sql("SELECT count(*) FROM t GROUP BY TUMBLE(x, '1 s')", t=md.source({"x": "int64"}, time=None))
