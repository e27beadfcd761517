"""What fuzzing inputs has found, small: each was another exception, the end of the process, or no end at all."""

# ruff: noqa: E501  # tables of bad values, a line each

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import plait
from plait import order, paths
from plait.cli import job
from plait.connectors import folder, parquet_file
from plait.connectors.files import DataFile
from plait.spark import formats
from plait.spark.formats import Card, Event, Manifest, Note
from plait.spark.plan.layout import Layout
from plait.threads.options import Options

S = plait.stream("s", unit="s")


def read(path: Path, stream: plait.Stream = S) -> list[Any]:
    return [chunk for lane in folder.feed(stream, path).lanes for chunk in lane.read()]


# --- what ended the interpreter -------------------------------------------------------------------------------

CRASHES = {
    "null": "null\n",
    "null and more": " null, 2\n",
    "null after a row": '{"ts":1}\nnull\n',
    "lists in lists": '{"ts":1,"l":' + "[" * 50_000 + "]" * 50_000 + "}\n",
    "objects in objects": '{"ts":1,"l":' + '{"a":' * 50_000 + "1" + "}" * 50_000 + "}\n",
    "lists that do not end": '{"ts":1,"l":' + "[" * 100_000 + "\n",
    "lists behind a word": '{"ts":1,"l":["Infinity",' + "[" * 5_000 + "]" * 5_001 + "}\n",
}

READS = """
import sys, plait
from pathlib import Path
from plait.connectors import folder
for path in sorted(Path(sys.argv[1]).iterdir()):
    for schema in (None, {"ts": "int64"}):
        try:
            feed = folder.feed(plait.stream("s", unit="s", schema=schema), path)
            list(feed.lanes[0].read())
            print("taken")
        except plait.DataError as error:
            print("refused", error)
"""


def test_lines_that_ended_the_process(tmp_path: Path) -> None:
    """In a process of its own: if one ends it again, that is told."""
    for at, text in enumerate(CRASHES.values()):
        (tmp_path / f"{at}.jsonl").write_text(text)
    done = subprocess.run([sys.executable, "-c", READS, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["refused"] * (2 * len(CRASHES))


def test_many_objects_in_a_list_are_not_deep(tmp_path: Path) -> None:
    rows = [{"ts": 1, "l": [{"a": "}]" * 3, "b": [i]} for i in range(2_000)]}] * 3
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert sum(chunk.batch.num_rows for chunk in read(tmp_path)) == 3


MIXED: dict[str, Callable[[], Any]] = {
    "a list": lambda: {"ts": [1, 2], "x": [np.datetime64("2024-01-01"), np.int8(3)]},
    "lists": lambda: {"ts": [1], "x": [[np.datetime64("NaT"), np.float32(3)]]},
    "dicts": lambda: {"ts": [1, 2], "x": [{"a": np.datetime64("2024-01-01")}, {"a": [np.bool_(True)]}]},
    "a column of objects": lambda: {"ts": [1, 2], "x": np.array([np.datetime64("2024-01-01"), np.int8(3)], object)},
    "a Series": lambda: {"ts": [1, 2], "x": pd.Series([np.datetime64("NaT"), np.int8(3)], dtype=object)},
    "a frame": lambda: pd.DataFrame({"ts": [1, 2], "x": np.array([np.datetime64("NaT"), np.int8(3)], object)}),
}


@pytest.mark.parametrize("name", MIXED)
def test_moments_among_numbers_of_numpys(name: str) -> None:
    query = plait.aggregate(S, size="10s", compute={"n": plait.count()})
    with pytest.raises(plait.DataError, match="moments stand among NumPy's numbers"):
        query.reference({"s": MIXED[name]()})


@pytest.mark.parametrize("columns", [25, 28])
def test_a_condition_on_many_columns(columns: int) -> None:
    """Addresses of one side's columns lay over the other's. Those that have no place are refused."""
    names = [f"c{k}" for k in range(columns)]
    schema = dict.fromkeys(["ts", *names], "int64")
    a, b = plait.stream("a", unit="s", schema=schema), plait.stream("b", unit="s", schema=schema)
    query = plait.join(a, b, on=" AND ".join(f"a.{n} <> b.{n} + 1" for n in names), within="5s")
    rows = {n: [1, 2] for n in ("ts", *names)}
    words = r"reads \d+ columns of a\. On threads a join reads 24"
    with pytest.raises(plait.QueryError, match=words):
        query.run({"a": rows, "b": rows}, engine="threads", workers=1, plain=True)
    assert query.reference({"a": rows, "b": rows}).num_rows >= 0


# --- files --------------------------------------------------------------------------------------------------


def test_parquet_text_that_is_no_text(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"ts": [1, 2], "s": ["abc", "xyz"]}), tmp_path / "a.parquet", compression="none", use_dictionary=False
    )
    data = (tmp_path / "a.parquet").read_bytes()
    at = data.index(b"\x03\0\0\0xyz") + 4
    (tmp_path / "a.parquet").write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with pytest.raises(plait.DataError, match=r"damaged at or after row 0.*UTF8"):
        read(tmp_path)


def test_columns_of_lists_are_under_no_codes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"s": ["a", "a"], "l": [["a"], ["a"]]}), tmp_path / "a.parquet")
    file = DataFile(str(tmp_path / "a.parquet"), "a.parquet", 1)
    assert parquet_file.under_codes(file) == {"s"}


def test_small_files_that_are_large_inside(tmp_path: Path) -> None:
    """Compressed a thousandfold: a header of 64 million names takes twenty gigabytes."""
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as file:
        for _ in range(64):
            file.write(b"," * (1 << 20))
    (tmp_path / "a.csv.gz").write_bytes(out.getvalue())
    with pytest.raises(plait.DataError, match=r"no readable header\. It is longer than 262144 characters"):
        read(tmp_path)


# --- what describes work ------------------------------------------------------------------------------------

FILES = {
    "tables in tables": ("q.toml", "x={" * 3_000, "nested too deeply"),
    "a number of thousands of digits": ("q.toml", "x = " + "9" * 5_000, "is not TOML"),
    "a table in the place of a name": ("q.toml", "[workload]\nname = {a = 1}\n[query]\nkind = 'join'", "no workload"),
    "a table in the place of an input": ("q.toml", "[query]\nkind = 'join'\nleft = {}", "names {}, which is neither"),
    "a table in the place of a kind": ("q.toml", "[query]\nkind = {}", "kind is {}"),
    "sources by the thousand million": ("q.toml", "[workload]\nname = 'songs'\nrows = 0\nsources = 2147483648", "4,096 at most"),
    "rows beyond 64 bits": ("q.toml", "[workload]\nname = 'songs'\nrows = 18446744073709551616", "at most"),
    "a function for data that raises": (
        "q.py", "import plait\nquery = plait.stream('a').where('x > 1')\ndata = lambda: 1 / 0", "raised ZeroDivisionError"
    ),
    "an output that is no path": (
        "q.py", "import plait\nquery = plait.stream('a').where('x > 1')\noutput = 3", "`output` is 3"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_that_describe_no_work(tmp_path: Path, name: str) -> None:
    file, text, words = FILES[name]
    (tmp_path / file).write_text(text)
    with pytest.raises(plait.PlaitError) as caught:
        job.load(str(tmp_path / file))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("a" * 5_000, "5000 characters"),
        ("file:/\udc80\ud800", "names no file"),
        ("\ud800", "names no file"),
        ("a/" * 5_000, "characters"),
    ],
)
def test_paths_that_no_file_has(path: str, words: str) -> None:
    with pytest.raises(plait.DataError, match=words):
        paths.absolute(path)


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(plait.DataError, match="File name too long"):
        folder.feed(S, tmp_path / ("a" * 300))
    with pytest.raises(plait.DataError, match="There is no file"):
        job.load("a" * 300 + ".toml")


@pytest.mark.parametrize(
    "condition", ["contains(s.t, ('a'))", "s.t LIKE (('a%'))", "s.t RLIKE ('^a')", "startswith(s.t, ((('a'))))"]
)
def test_a_pattern_in_parentheses(condition: str) -> None:
    """Threads read it, and the reference raised TypeError."""
    query, rows = S.where(condition), {"s": {"ts": [1, 2], "t": ["ab", "x"]}}
    assert query.reference(rows)["t"].to_pylist() == ["ab"]
    with query.on_threads(plain=True) as run:
        run.push("s", None, rows["s"])
        run.drain()
        assert run.table()["t"].to_pylist() == ["ab"]


# --- the API ------------------------------------------------------------------------------------------------

ARRAY = np.array([1, 2])
CALLS: dict[str, Callable[[], object]] = {
    "unit": lambda: plait.stream("s", unit=ARRAY),  # type: ignore[arg-type]
    "late": lambda: plait.stream("s", late=ARRAY),  # type: ignore[arg-type]
    "how": lambda: plait.join(S, plait.stream("t"), on="s.x = t.x", within="1s", how={}),  # type: ignore[arg-type]
    "how of as-of": lambda: plait.asof(S, plait.stream("t"), how=ARRAY),  # type: ignore[arg-type]
    "engine": lambda: plait.dedup(S, by="x", within="1s").run({}, engine={}),  # type: ignore[call-overload]
    "order": lambda: plait.dedup(S, by="x", within="1s").reference({}, order=ARRAY),  # type: ignore[arg-type]
    "strategy": lambda: Options(strategy=ARRAY),  # type: ignore[arg-type]
    "workers": lambda: Options(workers=2**63),
    "a wait": lambda: Options(stall_after_s=1e40),
    "a column's name": lambda: plait.dedup(S, by="x", within="1s").reference({"s": {"ts": [1], "\ud800": [1]}}),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name: str) -> None:
    with pytest.raises(plait.PlaitError):
        CALLS[name]()


def test_a_wait_may_be_numpys() -> None:
    assert type(Options(stall_after_s=np.float32(1.5)).stall_after_s) is float  # type: ignore[arg-type]


# --- what is stored and sent --------------------------------------------------------------------------------

LAYOUT = {"kind": "band", "rows": 2, "columns": 1, "why": "so", "term": 0, "wide": 8, "placed": [[3, [0, 1]]]}


@pytest.mark.parametrize(
    "change",
    [
        {"placed": [[]]},
        {"placed": 5},
        {"rows": 10**40},
        {"rows": 0},
        {"rows": -1},
        {"columns": "1"},
        {"kind": None},
        {"wide": [1]},
    ],
)
def test_a_layout_that_is_none(change: dict[str, Any]) -> None:
    assert Layout.again(LAYOUT, 4).cells == 2
    with pytest.raises(plait.RunError, match="card can't be read"):
        Layout.again(LAYOUT | change, 4)


PINS = {
    "fingerprint": "f",
    "query": "q",
    "rows": 1,
    "columns": 1,
    "partitions": 2,
    "shape": "s",
    "functions": "u",
    "loose": [],
}


def whole(found: dict[str, Any]) -> str:
    """A small file that says this, with the checksum that it would have."""
    return formats._text(found)


CARD = {"pins": PINS, "id": "i", "runs": ["r"], "target": "/out"}


@pytest.mark.parametrize(
    "change",
    [{"first": None}, {"first": -2}, {"runs": []}, {"runs": [1]}, {"id": 5}, {"left": 3}, {"pins": 5},
     {"pins": PINS | {"rows": 0.0}}, {"pins": PINS | {"rows": -8}}, {"pins": PINS | {"layout": []}}, {"pins": PINS | {"loose": [1]}}],
)  # fmt: skip
def test_a_card_whose_fields_are_others(change: dict[str, Any]) -> None:
    assert Card.read(whole(CARD), "here").id == "i"
    with pytest.raises(ValueError, match=r"its |object|argument"):
        Card.read(whole(CARD | change), "here")


@pytest.mark.parametrize("read", [lambda text: Card.read(text, "here"), lambda text: Note.read(text, "here")])
def test_files_that_are_nested_deep(read: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read("[" * 50_000)
    assert Event.read("[" * 50_000) is None


@pytest.mark.parametrize(
    "event",
    ['{"no": 1, "do": "end"}', '{"no": 1, "do": "end", "stream": []}', '{"no": 1, "do": "heartbeat", "stream": "a", "ts": "x"}',
     '{"no": 1, "do": "heartbeat", "stream": "a", "ts": true}', '{"no": 1, "do": "end", "stream": "a", "source": {}}', '{"no": 1, "do": ""}'],
)  # fmt: skip
def test_events_that_are_none(event: str) -> None:
    assert Event.read(whole(json.loads(event))) is None


BODY = formats.body(formats.Tick(5))
BODIES = {
    "no JSON": BODY[:10] + b"\xff" * 8 + BODY[18:],
    "nested": (60_000).to_bytes(4, "little") + bytes(4) + b"[" * 60_000,
    "a list": (2).to_bytes(4, "little") + bytes(4) + b"[]",
    "no such kind": BODY.replace(b'"tick"', b'"tock"'),
    "no such field": BODY.replace(b'"elapsed_us"', b'"elapsed_ns"'),
    "a kind that is none": formats.body(formats.Tick(5)).replace(b'"tick"', b"[    ]"),
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies_that_are_damaged(name: str) -> None:
    with pytest.raises(plait.RunError, match=r"^The state of a cell in the checkpoint (is damaged|has no version)"):
        Manifest.load(BODIES[name])


def test_rows_that_are_damaged() -> None:
    data = formats.chunk_body(pa.table({"x": [1, 2, 3]}))
    for cut in range(80, len(data) - 40, 7):
        with pytest.raises(plait.RunError, match="damaged"):
            formats.chunk_table(data[:cut])


@pytest.mark.parametrize(
    "key", [b"\x05", b"\x20", b"\x10\0", b"\x30abc", b"\x01", b"\x12", b"\x05" * 100_000, order.encode((1, b"a"))[:-1]]
)
def test_keys_that_are_none(key: bytes) -> None:
    with pytest.raises(plait.DataError, match="is no key"):
        order.decode(key)
