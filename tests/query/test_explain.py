"""`explain` says in words what a query computes."""

from typing import Any

import pytest
from tests.query.refusal import quotes, trades

import plait


def jump(q: Any, t: Any) -> bool:
    return bool(q.x and t.a)


def test_a_join() -> None:
    query = plait.join(quotes, trades, on=lambda q, t: (abs(q.x - t.a) <= 10) & (q.y < 0.5), within="5 minutes")
    assert query.explain() == (
        "inner join, within 5 min, on ((abs((quotes.x - trades.a)) <= 10) and (quotes.y < 0.5))\n"
        "  stream quotes: time ts, as delivered\n"
        "  stream trades: time ts, as delivered"
    )


def first_line(query: plait.Query) -> str:
    return query.explain().split("\n")[0]


def test_windows_of_a_join() -> None:
    assert "right from 1 s before to 2 ms after left" in first_line(plait.join(quotes, trades, within=("1s", "2ms")))
    assert "last 100 tuples" in first_line(plait.join(quotes, trades, last=100))
    assert "tumbling 1 h" in first_line(plait.join(quotes, trades, tumbling="1 hour"))
    assert first_line(plait.join(quotes, trades, within=0, how="anti")).startswith("anti join, within 0 us, on ")


def test_conditions() -> None:
    def on(condition: Any) -> str:
        return first_line(plait.join(quotes, trades, on=condition, within=1)).partition(", on ")[2]

    assert on("quotes.x % 3 = trades.a / 2 AND NOT d") == "((sqlmod(quotes.x, 3) = sqldiv(trades.a, 2)) and (not d))"
    assert on(lambda q, t: plait.minimum(q.x, t.a) // 2 == 3) == "((least(quotes.x, trades.a) // 2) = 3)"
    assert on(lambda q, t: q.s.is_null() | (-q.x.cast("int8") == 1)) == (
        "((quotes.s is null) or ((-cast(quotes.x as int8)) = 1))"
    )
    assert on("s = NULL") == "(s = NULL)"
    assert on(jump).startswith("opaque function 'jump' (it asks for the truth of a column")
    assert on(lambda q, t: str(q.x) == t.s) == "opaque function '<lambda>' (it makes text of a column)"


def test_streams() -> None:
    def line(**options: Any) -> str:
        return (
            plait.aggregate(plait.stream("s", **options), size=1, compute={"n": plait.count()}).explain().split("\n")[1]
        )

    assert line(time="at") == "  stream s: time at, as delivered"
    assert (
        line(source="who", sources=["a", "b"])
        == "  stream s: time ts, as delivered, sources named by column who, 2 declared"
    )
    assert line(source=plait.FILE) == "  stream s: time ts, as delivered, a source for each file"
    assert line(source=plait.PARTITION) == "  stream s: time ts, as delivered, a source for each Kafka partition"
    assert line(sources=3) == "  stream s: time ts, as delivered, 3 declared"
    assert line(seq="content") == "  stream s: time ts, ties by content"
    assert line(seq="offset") == "  stream s: time ts, by column offset"
    assert line(disorder="2s") == "  stream s: time ts, as delivered, disorder up to 2 s, late tuples: error"
    assert line(late="drop") == "  stream s: time ts, as delivered, late tuples: drop"


def test_what_is_not_deterministic_is_said() -> None:
    loose = plait.stream("s", behind="drop", idle_after="3s")
    assert (
        plait.join(loose, quotes, last=1)
        .explain()
        .split("\n")[1]
        .endswith("[not deterministic: behind='drop' and idle_after=3 s]")
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "last right tuple at or before each left one"),
        ({"exact": False}, "last right tuple before each left one"),  # as old checkpoints know it
        ({"exact": False, "within": 5}, "last right tuple before each left one, at most 5 us old"),
        ({"direction": "forward", "within": 5}, "first right tuple at or after each left one, at most 5 us away"),
        ({"direction": "forward", "within": 5, "exact": False}, "first right tuple after each left one, at most 5 us away"),
        ({"direction": "nearest", "within": 5}, "nearest right tuple to each left one, at most 5 us away"),
        ({"direction": "nearest", "within": 5, "exact": False},
         "nearest right tuple to each left one, of another ts, at most 5 us away"),
    ],
)  # fmt: skip
def test_as_of(options: dict[str, Any], words: str) -> None:
    assert first_line(plait.asof(quotes, trades, **options)) == f"as-of join (left): {words}"


def test_the_other_queries() -> None:
    by = plait.asof(quotes, trades, by=["s", ("x", "a")], within="1s", name="latest")
    assert first_line(by) == (
        "as-of join 'latest' (left): last right tuple at or before each left one, by s, x = a, at most 1 s old"
    )
    spans = plait.aggregate(quotes, size="30s", advance="3s", by=["s", "d"],
                            compute={"n": plait.count(), "m": plait.mean("x")})  # fmt: skip
    assert first_line(spans) == "aggregate by s, d, windows of 30 s every 3 s: n = count(), m = mean(x)"
    tuples = plait.aggregate(quotes, size=10, advance=3, compute={"f": plait.first_where("x", "x > 1")})
    assert first_line(tuples) == "aggregate, windows of 10 tuples every 3: f = first_where(x, where (x > 1))"

    def ring(state: Any, t: Any) -> None: ...

    bells = plait.operator(quotes, buckets=64, route=hash, state=dict, process=ring, output={"n": "int8"}, name="bells")
    assert first_line(bells) == "operator 'bells', 64 buckets: ring"


def test_inputs_stand_below_what_reads_them() -> None:
    inner = plait.aggregate(quotes, size="1s", compute={"n": plait.count()}, name="counts")
    lines = plait.join(inner, trades, last=1, name="outer").explain().split("\n")
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 4, 2]
    assert lines[0].startswith("inner join 'outer'")
    assert lines[1].startswith("  aggregate 'counts'")


def test_a_notebook_shows_the_plan() -> None:
    query = plait.aggregate(
        plait.stream("a", unit="us"), size="5us", compute={"n": plait.count(where="x < 3 and y > 2")}
    )
    assert query._repr_html_() == f"<pre>{query.explain().replace('<', '&lt;').replace('>', '&gt;')}</pre>"
