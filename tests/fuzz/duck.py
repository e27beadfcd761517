"""DuckDB as an outside judge of the reference, for what SQL can say: joins over windows of time, aggregates
over spans, dedups, and whole chains (`chains`).

DuckDB knows no total order, so every row is given its place here, by the definition: (ts, input, source, seq). It is asked for
pairs of places, or for groups of them; integers are HUGEINT there, since its own overflow. NaN is equal to itself in DuckDB,
so no floats are compared there; conditions with other words than both have are left to the reference alone.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import duckdb
import pyarrow as pa
from tests.fuzz.chain_tables import quoted
from tests.fuzz.chains import Told
from tests.fuzz.feeds import Feed, taken
from tests.fuzz.judge import Answer
from tests.fuzz.queries import Group

from plait.query.aggregate import Aggregate, SpanWindow
from plait.query.dedup import Dedup
from plait.query.identical import KEY, digest
from plait.query.join import Join, TimeWindow, TumblingWindow
from plait.query.stream import Stream
from plait.schema import to_micros

INTEGERS = "kjipuotgd"
DAY_US = 86_400_000_000
#: What DuckDB has not, or has with another meaning.
_WORDS = re.compile(r"\b(?:contains|startswith|length|like|cast|hour)\b|/|%")


@functools.cache
def connection() -> Any:
    found = duckdb.connect()
    found.execute("set threads = 1")
    return found


def judged(group: Group, answer: Answer) -> str | None:
    """Where DuckDB and the reference part; None if they agree, or if DuckDB can't say."""
    if answer.table is None or any(each.stream.seq == "content" for each in group.feeds):
        return None
    try:
        return _judged(group, answer.table)
    except duckdb.OutOfRangeException:
        return None  # a product of integers that even its largest type can't hold


def _judged(group: Group, expected: pa.Table) -> str | None:
    query = group.query
    if group.told is not None:
        return _judged_chain(group, group.told, expected)
    if isinstance(query, Join) and all(isinstance(node, Stream) for node in query.inputs):
        return _judged_join(group, query, expected)
    if isinstance(query, Aggregate) and isinstance(query.window, SpanWindow) and isinstance(query.input, Stream):
        return _judged_spans(group, query, expected)
    if isinstance(query, Dedup) and isinstance(query.input, Stream):
        return _judged_dedup(group, query, expected)
    return None


# --- places -------------------------------------------------------------------------------------------------


def placed(each: Feed, input: int) -> list[tuple[int, int, Any, int, pa.Table]]:
    """(ts, input, source's rank, seq, row) of all rows that are not late."""
    found = []
    declared = each.stream.declared()
    for name, rows in each.sources.items():
        rank = name.encode() if isinstance(name, str) else name
        if declared is not None and not each.by_column:
            rank = declared.index(name)
        times = _times(each, rows)
        highest = None
        for at, ts in enumerate(times):
            if highest is None or ts >= highest - each.stream.disorder_us:
                found.append((ts, input, rank, at, rows.slice(at, 1)))
            highest = ts if highest is None else max(highest, ts)
    return found


def _times(each: Feed, rows: pa.Table) -> list[int]:
    if not len(rows):
        return []
    column = rows.column("ts").combine_chunks()
    return [int(ts) for ts in to_micros(column, each.stream.unit, stream=each.stream.name, name="ts")]


def _load(feeds: list[Feed]) -> list[pa.Table]:
    """Tables t0, t1 in DuckDB with `pos` over all inputs; gives the rows of each in the order of its own place."""
    every = sorted((p for n, each in enumerate(feeds) for p in placed(each, n)), key=lambda p: p[:4])
    tables = []
    for number, each in enumerate(feeds):
        own = [(pos, p[0], p[4]) for pos, p in enumerate(every) if p[1] == number]
        rows = pa.concat_tables([row for _, _, row in own]) if own else each.schema.empty_table()
        tables.append(rows)
        columns = {"pos": pa.array([pos for pos, _, _ in own], pa.int64()), "us": pa.array([ts for _, ts, _ in own], pa.int64()),
                   "own": pa.array(range(len(own)), pa.int64())}  # fmt: skip
        kept = [c for c in rows.column_names if c in INTEGERS + "sb"]
        incoming = pa.table(columns | {c: _numbers(c, rows.column(c)) for c in kept})
        casts = ", ".join(_cast(c) for c in kept)
        duck = connection()
        duck.register("incoming", incoming)
        duck.execute(
            f"create or replace table t{number} as "
            f"select pos, us::hugeint as us, own{', ' + casts if casts else ''} from incoming"
        )
        duck.unregister("incoming")
    return tables


def _numbers(name: str, column: Any) -> Any:
    return column.cast({"t": pa.int64(), "g": pa.int64(), "d": pa.int32()}.get(name, column.type))


def _cast(name: str) -> str:
    """Moments, days and spans count microseconds."""
    if name not in INTEGERS:
        return name
    return f"{name}::hugeint * {DAY_US if name == 'd' else 1} as {name}"


# --- joins --------------------------------------------------------------------------------------------------


def _sql_of(group: Group) -> str | None:
    """The condition as SQL, if it means the same to DuckDB."""
    sql = group.on[0].sql if len(group.on) == 1 else None
    if sql is None or not group.on[0].reads[0] | group.on[0].reads[1] <= set(INTEGERS + "sb") or _WORDS.search(sql):
        return None
    return re.sub(r"\b([lr])\.ts\b", r"\1.us", sql)


def _judged_join(group: Group, query: Join, expected: pa.Table) -> str | None:
    on = _sql_of(group)
    if on is None:
        return None
    if isinstance(query.window, TimeWindow):
        fits = f"r.us - l.us between {-query.window.before_us} and {query.window.after_us}"
        before, after = query.window.before_us, query.window.after_us
    elif isinstance(query.window, TumblingWindow):
        size = query.window.size_us
        fits = f"(l.us - ((l.us % {size} + {size}) % {size})) = (r.us - ((r.us % {size} + {size}) % {size}))"
        before = after = 0
    else:
        return None
    by_name = {each.stream.name: each for each in group.feeds}
    left, right = _load([by_name[node.name] for node in query.inputs if isinstance(node, Stream)])
    pairs = (f"select greatest(l.us, r.us) as ts, 0 as lone, greatest(l.pos, r.pos) as t, least(l.pos, r.pos) as p, "
             f"l.own as a, r.own as b from t0 l join t1 r on ({fits}) and ({on})")  # fmt: skip
    lone = (f"select l.us + {after}, 1, l.pos, 0, l.own, null from t0 l "
            f"where not exists (select 1 from t1 r where ({fits}) and ({on}))")  # fmt: skip
    other = (f"select r.us + {before}, 2, r.pos, 0, null, r.own from t1 r "
             f"where not exists (select 1 from t0 l where ({fits}) and ({on}))")  # fmt: skip
    first = f"select * from ({pairs}) qualify row_number() over (partition by a order by t, p) = 1"
    sql = {"inner": pairs, "left": f"{pairs} union all {lone}", "right": f"{pairs} union all {other}",
           "full": f"{pairs} union all {lone} union all {other}", "semi": first, "anti": lone}[query.how]  # fmt: skip
    found = (
        connection()
        .execute(f"select a, b from ({sql}) as found(ts, lone, t, p, a, b) order by ts, lone, t, p")
        .fetchall()
    )
    columns = taken(left, [a for a, _ in found]).columns
    if query.how not in ("semi", "anti"):
        columns = columns + taken(right, [b for _, b in found]).columns
    return _same(expected, columns, 1, f"DuckDB, on {on}")


def _same(expected: pa.Table, columns: list[Any], skip: int, what: str) -> str | None:
    """The reference's columns but for the first few, against these."""
    own = expected.drop_columns([KEY])
    names = own.column_names[skip:]
    ours = own.select(names)
    theirs = pa.table(columns, names=names).cast(ours.schema)  # how values are laid out is not DuckDB's to judge
    if digest(ours) == digest(theirs):
        return None
    return f"{what}: the reference gives {len(ours)} rows\n{ours.to_pydict()}\nand DuckDB {len(theirs)}\n{theirs.to_pydict()}"


# --- chains -------------------------------------------------------------------------------------------------


def _judged_chain(group: Group, told: Told, expected: pa.Table) -> str | None:
    """The whole query: its statements one after the other, from the streams' tables on."""
    duck = connection()
    for each in group.feeds:
        _load([each])
        columns = "".join(f", {name}" for name in each.schema.names if name in INTEGERS + "sb")
        others = "".join(
            f", null as {name}" for name in each.schema.names if name not in INTEGERS + "sb" and name != "ts"
        )
        duck.execute(
            f"create or replace temp table s_{each.stream.name} as select us as ts, pos{columns}{others} from t0"
        )
    for statement in told.statements:
        duck.execute(statement)
    names = ["ts", *(name for name, kind in told.columns.items() if kind != "other" and name != "ts")]
    if expected.column_names != [*dict.fromkeys(["ts", *told.columns]), KEY]:
        return f"columns {expected.column_names}, and by the rules {list(told.columns)}"
    rows = duck.execute(f"select {', '.join(map(quoted, names))} from {told.table} order by pos").fetchall()
    ours = list(zip(*(_plainly(expected.column(name)) for name in names), strict=True))
    if ours == rows:
        return None
    at = next(
        (at for at, pair in enumerate(zip(ours, rows, strict=False)) if pair[0] != pair[1]), min(len(ours), len(rows))
    )
    return (f"DuckDB: {len(rows)} rows and the reference {len(ours)}, of {names}\nrow {at}: the reference {ours[at : at + 3]}\n"
            f"{'':{len(str(at)) + 6}}DuckDB {rows[at : at + 3]}")  # fmt: skip


def _plainly(column: Any) -> list[Any]:
    """Moments as the microseconds that they are."""
    found: list[Any] = column.cast(pa.int64()).to_pylist() if pa.types.is_temporal(column.type) else column.to_pylist()
    return found


# --- dedup --------------------------------------------------------------------------------------------------


def _judged_dedup(group: Group, query: Dedup, expected: pa.Table) -> str | None:
    """Of each key its first row, then again and again the first that lies further than the span behind the last one."""
    if not set(query.by) <= set("kjipuosb"):
        return None
    (rows,) = _load([group.feeds[0]])
    keys, same = ", ".join(query.by), " and ".join(f"t0.{c} is not distinct from kept.{c}" for c in query.by)
    first = f"select {keys}, own, us from t0 qualify row_number() over (partition by {keys} order by own) = 1"
    later = (f"select {', '.join(f't0.{c}' for c in query.by)}, t0.own, t0.us, row_number() over (partition by kept.own order by "
             f"t0.own) as turn from kept join t0 on {same} and t0.us > kept.us + {query.within_us}")  # fmt: skip
    found = connection().execute(
        f"with recursive kept as ({first} union all select {keys}, own, us from ({later}) where turn = 1) "
        "select own from kept order by own"
    ).fetchall()  # fmt: skip
    kept = taken(rows, [own for (own,) in found])
    columns = [kept.column(name) for name in kept.column_names if name != "ts"]
    return _same(expected, columns, 1, f"DuckDB, dedup by {keys}")


# --- aggregates ---------------------------------------------------------------------------------------------

_FUNCTIONS = {"count": "count(*)", "sum": "sum({0})", "min": "min({0})", "max": "max({0})", "distinct": "count(distinct {0})",
              "first": "arg_min_null({0}, pos)", "last": "arg_max_null({0}, pos)"}  # fmt: skip


def _judged_spans(group: Group, query: Aggregate, expected: pa.Table) -> str | None:
    window = query.window
    assert isinstance(window, SpanWindow)
    # What sees some tuples only is judged in chains.
    says = [(name, f) for name, f in query.compute
            if f.kind in _FUNCTIONS and f.where is None and all(c in "kjipuos" for c in f.columns)]  # fmt: skip
    if not says or not set(query.by) <= set("kjipuos"):
        return None
    _load([group.feeds[0]])
    size, advance = window.size_us, window.advance_us
    numbers = (f"select unnest(generate_series(0, {(size + advance - 1) // advance})) as back")  # fmt: skip
    windows = (f"select t0.*, ((us - ((us % {advance} + {advance}) % {advance})) - back * {advance}) as start "
               f"from t0, ({numbers})")  # fmt: skip
    keys = "".join(f", {c}" for c in query.by)
    functions = ", ".join(_FUNCTIONS[f.kind].format(*f.columns) for _, f in says)
    found = connection().execute(
        f"select start{keys}, {functions} from ({windows}) where us >= start and us < start + {size} group by start{keys} "
        f"order by start{''.join(f', {c} nulls last' for c in query.by)}"
    ).fetchall()  # fmt: skip
    names = [*query.by, *(name for name, _ in says)]
    ours = list(zip(*(expected.column(n).to_pylist() for n in names), strict=True))
    theirs = [tuple(None if v is None else v for v in row[1:]) for row in found]
    if ours == theirs:
        return None
    return f"DuckDB, {says}: the reference gives {ours}\nand DuckDB {theirs}"
