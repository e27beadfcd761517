"""The golden record: what every executor answers for `queries`, in every way that it can be run.

    python -m tests.golden.record            makes golden.json anew

Made before plait's modules were moved, and compared with ever since (`test_golden`): a change that is not meant to change
answers makes it anew in no case. For each query it has

    rows, keys      hashes of the result's rows and of `_plait_key`, in order. Every executor has the rows; threads have the
                    reference's keys too, and Spark keys of its own, in which a tuple's position is a file and a row
    late            of the rows dropped as late, in any order
    digest          what `plait verify` prints; it hashes Arrow's own bytes
    fingerprints    what a Spark checkpoint pins, by layout: with and without users' functions
    functions       the same of users' operators; `loose`: what of any function can't be pinned
    threads         the ways to run it on threads; all others are refused
    spark           way -> hash of the keys, without the folder that files are in
"""

from __future__ import annotations

import functools
import hashlib
import json
import random
import tempfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from tests.fuzz import judge
from tests.fuzz.feeds import Feed
from tests.fuzz.queries import Group
from tests.golden.queries import QUERIES
from tests.reference.judge import rows_of
from tests.spark import feeds

import plait.spark
from plait.errors import QueryError
from plait.order import BEFORE_ALL
from plait.query import Aggregate, Dedup, Join, Operator, bind
from plait.query.identical import KEY, digest
from plait.query.join import Asof, TimeWindow
from plait.spark.formats import Pins
from plait.spark.plan.fingerprint import beside, fingerprint
from plait.spark.plan.stages import layouts
from plait_bench import multi_queues, rivals

FILE = Path(__file__).with_name("golden.json")

# --- hashes -------------------------------------------------------------------------------------------------


def hashed(parts: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()[:32]


def rows_hash(table: pa.Table) -> str:
    """Of names, types and rows in order; bit by bit, but for NaN."""
    rows = table.drop_columns([KEY]) if KEY in table.column_names else table
    return hashed([[(field.name, str(field.type)) for field in rows.schema], *rows_of(rows)])


def keys_hash(table: pa.Table, folder: Path | None = None) -> str:
    keys: list[bytes] = table.column(KEY).to_pylist()
    return hashed(keys if folder is None else (key.replace(f"file://{folder}/".encode(), b"") for key in keys))


def late_hash(late: dict[str, pa.Table]) -> dict[str, str]:
    return {name: hashed(sorted(map(repr, rows_of(rows)))) for name, rows in sorted(late.items()) if len(rows)}


# --- the reference, and what a checkpoint pins --------------------------------------------------------------

LAYOUTS: dict[str, Any] = {"1x1": (1, 1), "2x1": (2, 1), "2x2": (2, 2), "hash": "hash", "auto": "auto"}


def answered(group: Group) -> tuple[pa.Table, dict[str, Any]]:
    """The reference's answer, and what the record says of it."""
    answer = judge.answer(group)
    if answer.table is None:
        raise AssertionError(f"the reference refuses: {answer.error}")
    table = answer.table
    found: dict[str, Any] = {"rows": rows_hash(table), "keys": keys_hash(table), "digest": digest(table)[:16]}
    return table, found | {"count": len(table), "late": late_hash(answer.late)}


def pinned(group: Group) -> dict[str, Any]:
    """What a checkpoint would have, of every layout that there can be on two cores."""
    query, found = group.query, {}
    bound = bind(query, {each.stream.name: each.schema for each in group.feeds})
    for name, wanted in LAYOUTS.items():
        try:
            cells = layouts(bound, wanted, 2, 2)
        except QueryError:
            continue
        found[name] = [fingerprint(query, bound, *cells), fingerprint(query, bound, *cells, functions=False)]
    pins = beside(bound)
    return {"fingerprints": found, "functions": pins["functions"], "loose": list(pins["loose"])}


# --- threads ------------------------------------------------------------------------------------------------


def ways(group: Group) -> dict[str, dict[str, Any]]:
    """Every way to run such a query on threads by name, those that are refused among them."""
    query = group.query
    found: dict[str, dict[str, Any]] = {
        "auto": {},
        "2 workers": {"workers": 2},
        "plain": {"plain": True, "workers": 1},
        "elastic": {"elastic": 2, "workers": 1},
    }
    if isinstance(query, Join):
        del found["2 workers"]  # below, with batches of one tuple
        found |= {
            "sequential": {"strategy": "sequential", "workers": 1},
            "scalejoin": {"strategy": "scalejoin", "workers": 3},
            "splitjoin": {"strategy": "splitjoin", "workers": 2},
            "dpjoin linear": {"strategy": "dpjoin", "workers": 2, "layout": "linear"},
            "dpjoin square": {"strategy": "dpjoin", "workers": 4, "layout": "square"},
            "dpjoin rectangular": {"strategy": "dpjoin", "workers": 2, "layout": "rectangular", "rates": (1.0, 9.0)},
            "by turns": {"workers": 2, "batch": 1, "capacity": 4},
            "order none": {"workers": 2, "order": "none"},
        }
        found |= {f"index {index}": {"index": index, "workers": 1} for index in ("scan", "hash", "grid", "sorted")}
    if isinstance(query, Join) and isinstance(query.window, TimeWindow):
        found |= {name: {"strategy": name, "workers": 2, "order": "none", "index": "scan"} for name in rivals.NAMES}
    if isinstance(query, (Join, Asof)):
        found["partitioned"] = {"strategy": "partitioned", "workers": 3}
    if isinstance(query, Aggregate):
        found |= {name: {"strategy": name} for name in (*multi_queues.NAMES, "tuml_sc", "wiml", "wiml_shared")}
        found["tuml_mc"] = {"strategy": "tuml_mc", "workers": 2}
    if not isinstance(query, (Join, Aggregate, Asof, Dedup, Operator)):
        raise AssertionError(type(query))
    if any(isinstance(child, plait.Query) for child in query.inputs):
        found = {
            k: v
            for k, v in found.items()
            if k in ("auto", "by turns", "2 workers", "elastic", "plain", "tuml_sc", "mq", "scalejoin")
        }
    return found


def on_threads(group: Group, options: dict[str, Any]) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The result and the late rows; sources by turns, in pieces of any size."""
    chance = random.Random("golden")
    schemas = {each.stream.name: each.schema for each in group.feeds}
    with group.query.on_threads(schemas=schemas, keys=True, unread_results=1 << 14, **options) as run:
        for each in group.feeds:
            if each.stream.declared() is None:
                for source in each.sources:
                    run.heartbeat(each.stream.name, source, BEFORE_ALL)
        rest = [[each.stream.name, source, rows] for each in group.feeds for source, rows in lanes(each).items()]
        while rest:
            lane = chance.choice(rest)
            size = chance.choice((1, 3, 7, 20))
            run.push(lane[0], lane[1], lane[2].slice(0, size))
            lane[2] = lane[2].slice(size)
            if not len(lane[2]):
                rest.remove(lane)
            if "elastic" in options and chance.random() < 0.3:
                run.resize(chance.randint(1, options["elastic"]))
        run.drain()
        late = {each.stream.name: each for each in group.feeds if each.stream.late == "drop"}
        table = run.table()
        table = table.sort_by(KEY) if "order" in options else table
        return table, {name: run.late(name) for name in late}


def lanes(each: Feed) -> dict[Any, pa.Table]:
    return {None: each.interleaved()} if each.by_column else dict(each.sources)


def threads(
    group: Group, expected: dict[str, Any], *, plain: bool = False, part: slice = slice(None)
) -> tuple[list[str], list[str]]:
    """The ways that serve, and in words those that gave something else. `plain`: conditions and operators in Python;
    `part`: of the ways only these."""
    served, wrong = [], []
    for name, options in list(ways(group).items())[part]:
        try:
            table, late = on_threads(group, {"plain": plain} | options)
        except QueryError:
            continue
        served.append(name)
        got = {"rows": rows_hash(table), "keys": keys_hash(table), "late": late_hash(late)}
        wrong += [f"threads, {name}: other {what}" for what in got if got[what] != expected[what]]
    return served, wrong


# --- Spark --------------------------------------------------------------------------------------------------

#: Queries that the slow test runs on Spark in all ways, every other in one; and the way of the everyday test, which runs those
#: that are not left to the soak below: of each kind of query, window, condition and layout one is here.
QUICK: dict[str, str] = {
    "join within, every pair": "batch 2x2",
    "join within, equal": "batch hash",
    "join within, equal, left": "batch 2x1",
    "join within, equal, anti": "batch hash",
    "join within, two bands": "batch 2x2",
    "join traced": "batch 1x1",
    "join text conditions": "batch 2x2",
    "join opaque": "batch 2x2",
    "join last": "batch 2x1",
    "join tumbling, band": "batch 2x2",
    "join with itself": "batch hash",
    "join names undeclared": "batch 1x1",
    "join by content": "batch 2x2",
    "join by seq": "batch 2x2",
    "join late dropped": "batch hash",
    "join files": "batch 2x2",
    "asof by two": "batch hash",
    "asof moments, inner": "batch 2x1",
    "aggregate sliding": "batch 1x1",
    "aggregate texts": "batch hash",
    "aggregate where": "batch hash",
    "aggregate custom by": "batch hash",
    "aggregate tuples by": "batch hash",
    "operator keeping rows": "batch 2x2",
    "operator compiled, timers": "batch 2x2",
    "dag aggregate of left join": "batch 1x1",
    "dag join of aggregate": "batch hash",
    "join within, equal, full": "batch hash",
    "join within, band, right": "batch 1x1",
    "dedup by two": "batch hash",
}
LEFT_TO_THE_SOAK = ("join within, every pair", "join within, equal, anti", "join traced", "join names undeclared", "join by seq",
                    "join files", "asof moments, inner", "aggregate texts", "aggregate where", "operator keeping rows",
                    "dag join of aggregate", "join tumbling, band", "join with itself", "join by content",
                    "aggregate custom by", "join within, band, right")  # fmt: skip
QUICK_STREAMS = (
    "join within, band",
    "asof by",
    "asof nearest by",
    "aggregate sliding by",
    "operator with timers",
    "dag aggregate of join",
)
#: Streams take some seconds each: of these CI's second look.
AGAIN = ("asof by", "asof nearest by", "dag aggregate of join", "join within, equal, left", "join opaque", "aggregate tuples by",
         "dag aggregate of left join", "dedup by two")  # fmt: skip
STREAMS = ("join within, equal, left", "join last", "join tumbling", "join opaque text", "join by seq", "join late dropped",
           "join names declared", "asof", "asof, not exact", "asof forward by, inner", "aggregate texts",
           "aggregate custom by", "aggregate tuples by",
           "operator compiled, timers", "operator keeping rows", "dag join of joins", "dag asof of aggregate")  # fmt: skip
BATCH = ("batch 1x1", "batch 2x2", "batch hash")
BY_ROWS = ("join late dropped", "aggregate texts", "operator keeping rows")  # Spark reads the files


@functools.cache
def spark_ways(name: str) -> tuple[str, ...]:
    """Where a layout is none for a query, two rows instead, or what it takes by itself; by hash it may be refused only once it is
    run.
    """
    every = name in QUICK or name in QUICK_STREAMS
    wanted: tuple[str, ...] = BATCH if every else (BATCH[list(QUERIES).index(name) % len(BATCH)],)
    wanted = ("batch hash", "batch 2x1") if wanted == ("batch hash",) else wanted
    possible = pinned(QUERIES[name])["fingerprints"]
    instead = "batch 2x1" if "2x1" in possible else "batch auto"
    found = [way if way.split()[1] in possible else instead for way in wanted]
    found += ["batch auto, by rows"] if name in BY_ROWS else []
    found += ["stream auto"] if name in QUICK_STREAMS else ["stream 1x1"] if name in STREAMS else []
    return tuple(dict.fromkeys(found))


def quick(name: str, way: str) -> bool:
    if name in LEFT_TO_THE_SOAK:
        return False
    return QUICK.get(name) == way or (name in QUICK_STREAMS and way == "stream auto")


def on_spark(spark: Any, group: Group, way: str, folder: Path) -> tuple[pa.Table, Pins]:
    """The result with its keys, and what a checkpoint pins; each lane in three files, one a micro-batch."""
    kind, layout = way.removesuffix(", by rows").split()
    data = {each.stream.name: frames(spark, each, folder / each.stream.name, kind == "stream") for each in group.feeds}
    result = group.query.on_spark(data, layout=LAYOUTS[layout], read="rows" if "rows" in way else "auto")
    if kind == "stream":
        return feeds.run(result, folder, keep_key=True), result._plait.pins()
    return feeds.collected(result), result._plait.pins()


def frames(spark: Any, each: Feed, folder: Path, streaming: bool) -> Any:
    schema = feeds.spark_schema(each.schema.empty_table())
    if each.stream.source == plait.FILE:
        folder.mkdir(parents=True)
        for number, (name, rows) in enumerate(each.sources.items()):
            feeds.write_file(folder / name, rows, number)
        return feeds.frame(spark, folder, schema, streaming=streaming, files=1)
    made = {}
    for number, (source, rows) in enumerate(lanes(each).items()):
        feeds.write_files(folder / str(number), rows, [len(rows) // 3, len(rows) // 2])
        made[source] = feeds.frame(spark, folder / str(number), schema, streaming=streaming, files=1)
    return made if isinstance(next(iter(made)), str) else list(made.values())


def spark_hash(spark: Any, name: str, way: str, expected: dict[str, Any], folder: Path) -> tuple[str | None, list[str]]:
    """The hash of the keys, None if it is refused; and in words what is other than the reference's and the record's."""
    group = QUERIES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            table, pins = on_spark(spark, group, way, folder)
        except QueryError:
            return None, []
        schema = judge.answer(group).table.schema  # type: ignore[union-attr]
    rows = schema.empty_table() if table.num_columns == 0 else table
    wrong = [] if rows_hash(rows.cast(schema)) == expected["rows"] else ["other rows"]
    layout = way.removesuffix(", by rows").split()[1]
    if [pins.fingerprint, pins.shape] != expected["fingerprints"][layout]:
        wrong.append("other fingerprints")
    own = {"functions": pins.functions, "loose": list(pins.loose)}
    wrong += [f"other {what}" for what in own if own[what] != expected[what]]
    return keys_hash(rows, folder), [f"Spark, {way}: {what}" for what in wrong]


def on_all_of_spark(record: dict[str, Any], folder: Path) -> None:
    session = plait.spark.session(master="local[2]", partitions=2, **{
        "spark.driver.memory": "1g", "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder),
    })  # fmt: skip
    session.sparkContext.setLogLevel("OFF")
    try:
        for number, name in enumerate(QUERIES):
            entry = record["queries"][name]
            entry["spark"] = {}
            for place, way in enumerate(spark_ways(name)):
                entry["spark"][way], wrong = spark_hash(session, name, way, entry, folder / f"{number}.{place}")
                if wrong:
                    raise AssertionError(f"{name}: {wrong}")
    finally:
        session.stop()


# --- the record ---------------------------------------------------------------------------------------------


def made() -> dict[str, Any]:
    """The whole record."""
    record: dict[str, Any] = {"pyarrow": pa.__version__, "queries": {}}
    for name, group in QUERIES.items():
        _, entry = answered(group)
        entry |= pinned(group)
        entry["threads"], wrong = threads(group, entry)
        if wrong:
            raise AssertionError(f"{name}: {wrong}")
        record["queries"][name] = entry
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        on_all_of_spark(record, Path(folder).resolve())
    return record


def written(record: dict[str, Any]) -> str:
    """A line for each query, so that a difference can be read."""
    lines = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in record["queries"].items()]
    return f'{{"pyarrow": {json.dumps(record["pyarrow"])}, "queries": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    FILE.write_text(written(made()))
