"""The page of a query on Spark: what it tells of sources, operators and cells; held, stopped, taken up again."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.spark import feeds

import plait
import plait.spark
from plait.core.metrics import Metrics
from plait.errors import QueryError
from plait.spark import formats
from plait.spark.formats import CellReport, SourceReport
from plait.spark.publish.begun import told_at
from plait.spark.publish.stats import Told
from plait.spark.publish.target import Owner

pytestmark = pytest.mark.spark

T = 1_763_542_933_000_000
QUOTES = plait.stream("quotes", unit="us", source="feed", sources=["x", "y"], late="drop")
TRADES = plait.stream("trades", unit="us")
NEAR = plait.join(QUOTES, TRADES, on="quotes.ts <> trades.ts", within=5)
QUERY = plait.aggregate(NEAR, size="10us", compute={"n": plait.count()})

#: By batch: quotes of x, of y, trades. The last one of y is late.
BATCHES = [
    ([10, 20, 30], [12, 22, 32], [11, 21, 31]),
    ([40, 50], [42, 33], [41, 51]),
    ([60, 70], [], [61, 71]),
]


def lay(folder: Path, number: int) -> None:
    x, y, trades = BATCHES[number]
    quotes = pa.table({"ts": pa.array(x + y, pa.int64()), "feed": ["x"] * len(x) + ["y"] * len(y)})
    for name, rows in (("quotes", quotes), ("trades", pa.table({"ts": pa.array(trades, pa.int64())}))):
        (folder / name).mkdir(exist_ok=True)
        feeds.write_file(folder / name / f"p{number:03d}.parquet", rows, number)


def frames(spark: Any, folder: Path) -> dict[str, Any]:
    schemas = {"quotes": "ts long, feed string", "trades": "ts long"}
    return {
        name: feeds.frame(spark, folder / name, schema, streaming=True, files=1) for name, schema in schemas.items()
    }


def started(spark: Any, folder: Path, **options: Any) -> Any:
    return plait.spark.write_ordered(
        QUERY.on_spark(frames(spark, folder), layout=(2, 1)), folder / "out", checkpoint=folder / "cp",
        late=folder / "late", **options,
    )  # fmt: skip


def asked(page: Any, path: str = "now") -> Any:
    with urllib.request.urlopen(f"{page.url}/{path}") as answer:
        text = answer.read().decode()
    return json.loads(text) if path == "now" else text


@pytest.fixture(scope="module")
def told(spark: Any, tmp_path_factory: Any) -> dict[str, Any]:
    """What a query tells in its life: after two starts, and at the end of input."""
    folder = tmp_path_factory.mktemp("page")
    found: dict[str, Any] = {"folder": folder}
    for name, batches in (("first", (0, 1)), ("second", (2,))):
        for number in batches:
            lay(folder, number)
        query = started(spark, folder)
        with plait.spark.page(query, port=0) as page:
            query.awaitTermination()
            found[name] = page.sampling.look().run
            found[f"{name} shown"], found[f"{name} metrics"] = asked(page), asked(page, "metrics")
    query = started(spark, folder, drain=True)
    with plait.spark.page(query, port=0) as page:
        query.awaitTermination()
        found["end"] = page.sampling.look().run
    return found


def by_name(run: Metrics) -> dict[tuple[str, Any], Any]:
    return {(each.stream, each.source): each for each in run.sources}


def test_sources(told: dict[str, Any]) -> None:
    first = by_name(told["first"])
    assert first.keys() == {("quotes", "x"), ("quotes", "y"), ("trades", 0)}
    x, y, trades = first["quotes", "x"], first["quotes", "y"], first["trades", 0]
    assert [each.rows for each in (x, y, trades)] == [5, 5, 5]
    assert [each.late for each in (x, y, trades)] == [0, 1, 0]
    assert [each.progress for each in (x, y, trades)] == [50, 42, 51]
    assert [each.lag_us for each in (x, y, trades)] == [1, 9, 0]
    assert [each.holds for each in (x, y, trades)] == [False, True, False]
    assert all(each.heard_at is not None for each in first.values())
    assert told["first"].waiting == {"quotes": 2, "trades": 1}  # 50 and 42; 51: those that do not lie below 42
    assert trades.waiting == 1


def test_counts_of_a_source_are_those_since_the_start(told: dict[str, Any]) -> None:
    second = by_name(told["second"])
    assert [second[at].rows for at in (("quotes", "x"), ("quotes", "y"), ("trades", 0))] == [2, 0, 2]
    assert second["quotes", "y"].heard_at is None
    assert second["quotes", "y"].holds
    assert second["quotes", "y"].progress == 42
    assert told["second"].waiting == {"quotes": 4, "trades": 3}


def test_a_start_that_takes_up_another(told: dict[str, Any]) -> None:
    assert (told["first"].restarts, told["second"].restarts, told["end"].restarts) == (0, 1, 1)
    assert [mark.kind for mark in told["first"].marks] == ["started"]
    assert [(mark.kind, mark.words) for mark in told["second"].marks] == [("taken up again", "at batch 2")]
    assert told["second"].caches_missed >= 0


def test_operators_and_cells(told: dict[str, Any]) -> None:
    run = told["end"]
    assert [(each.operator, each.label, each.inputs) for each in run.operators] == [
        (0, "aggregate", ("#1",)), (1, "join", ("quotes", "trades")),
    ]  # fmt: skip
    assert run.operators[0].results == run.results > 0
    assert run.operators[1].results == run.made - run.results > 0
    assert [(part.operator, vars(part)["cell"]) for part in run.parts] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for number in (0, 1):
        assert sum(part.share for part in run.parts if part.operator == number) == pytest.approx(1)
    assert set(run.latency_split_ms) >= {"working", "publishing"}


def test_the_sentence_and_what_to_copy(told: dict[str, Any]) -> None:
    shown = told["second shown"]
    assert shown["phase"] == "stopped", "it has taken what was there"
    assert "the checkpoint goes on from there" in shown["reason"]["words"]
    assert told["end"].phase == "ended"
    assert 'plait_source_rows_total{query="aggregate",stream="quotes",source="x"} 2' in told["second metrics"]
    assert 'plait_restarts_total{query="aggregate"} 1' in told["second metrics"]
    assert all(each.ended for each in told["end"].sources)


def test_a_query_that_is_held_up_is_told_of_while_nothing_happens(spark: Any, tmp_path: Path) -> None:
    for number in (0, 2):
        lay(tmp_path, number)
    query = started(spark, tmp_path, trigger={"processingTime": "100 milliseconds"})
    try:
        with plait.spark.page(query, port=0) as page:
            until = time.monotonic() + 120
            while asked(page)["reason"]["kind"] != "held" and time.monotonic() < until:
                time.sleep(0.2)
            reason = asked(page)["reason"]
            assert reason["words"].startswith("Held at 3.2e-05 s by source quotes/y, silent for ")
            assert reason["words"].endswith(
                "; 5 rows wait"
            )  # 60 and 70 of x, 61 and 71; 32 of y stands at the frontier
            command = reason["remedies"][0]["copy"]
            assert command.startswith("python -c 'import plait.spark; plait.spark.heartbeat(")
            exec(command.removeprefix("python -c '").removesuffix("'"))  # it does what it says
            while "quotes/y" in asked(page)["reason"]["words"] and time.monotonic() < until:
                time.sleep(0.2)  # then another one holds them
            assert "quotes/y" not in asked(page)["reason"]["words"]
    finally:
        query.stop()


def test_a_query_that_fails_is_told_by_plaits_own_error(spark: Any, tmp_path: Path) -> None:
    strict = plait.stream("trades", unit="us")
    rows = pa.table({"ts": pa.array([5, 1], pa.int64())})
    (tmp_path / "trades").mkdir()
    feeds.write_file(tmp_path / "trades" / "p0.parquet", rows, 0)
    frame = feeds.frame(spark, tmp_path / "trades", "ts long", streaming=True)
    df = plait.aggregate(strict, size="10us", compute={"n": plait.count()}).on_spark({"trades": frame})
    query = plait.spark.write_ordered(df, tmp_path / "out", checkpoint=tmp_path / "cp")
    with plait.spark.page(query, port=0) as page:
        with pytest.raises(Exception, match="is late"):
            query.awaitTermination()
        look = page.sampling.look()
        assert look.run.phase == "failed: LateError"
        assert look.shown["reason"]["words"] == "The run has failed with LateError: its log says which row or call"


def test_a_sink_of_the_users_own(spark: Any, tmp_path: Path) -> None:
    """What Spark's progress tells is all there is: counts where rows may be dropped, state, and times of batches."""
    for number in (0, 1):
        lay(tmp_path, number)
    df = QUERY.on_spark(frames(spark, tmp_path), layout=(2, 1), control=str(tmp_path / "control"))
    sink = df.writeStream.queryName("mine").format("noop").option("checkpointLocation", str(tmp_path / "cp"))
    query = sink.trigger(availableNow=True).start()
    with plait.spark.page(query, port=0) as page:
        query.awaitTermination()
        look = page.sampling.look()
        assert look.shown["title"] == "mine"
        assert (look.run.rows, sum(look.run.late.values())) == (15, 1)
        assert look.run.state_bytes
        assert look.run.latency_split_ms["working"].p50 > 0
        assert look.shown["reason"]["kind"] == "stopped"
        assert 'plait_rows_total{query="mine"} 15' in asked(page, "metrics")


def test_what_is_no_query_is_refused() -> None:
    with pytest.raises(QueryError, match="page of a dict"):
        plait.spark.page({})


# --- what is heard, without Spark -----------------------------------------------------------------------------


def report(*sources: SourceReport, **more: Any) -> CellReport:
    return CellReport(0, 0, more.pop("frontier", 5), sources=list(sources), **more)


def test_a_report_is_what_it_was_when_it_has_been_sent() -> None:
    told = report(SourceReport("a", "x", 5, 9, 3, 1, 2, True, False), SourceReport("a", 7, 6), waiting={"a": 4})
    assert formats.parse(formats.body(told))[0] == told


def test_silence_is_counted_from_when_a_source_was_heard() -> None:
    told = Told()
    told.began -= 100
    told.batch([report(SourceReport("a", "x", 5, 9, 3), SourceReport("a", "y", 4), holder=("a", "y"))], 0, 1, 2)
    run = told.now()
    assert run is not None
    by = by_name(run)
    assert by["a", "x"].silent_s < 50 < by["a", "y"].silent_s
    # A heartbeat moves its progress: it was heard. Time is the driver's.
    told.batch([report(SourceReport("a", "y", 8))], 3, 4, 5)
    run = told.now()
    assert run is not None
    assert by_name(run)["a", "y"].silent_s < 50
    assert by_name(run)["a", "y"].heard_at is not None


def test_sources_that_have_ended_are_not_kept_for_ever() -> None:
    told = Told()
    for number in range(500):
        told.batch([report(SourceReport("a", f"file {number}", 2**63 - 1, 9, 3, ended=True))], 0, 1, 2)
    told.batch([report(SourceReport("a", "live", 3))], 0, 1, 2)
    run = told.now()
    assert run is not None
    assert len(run.sources) == Told.ENDED + 1
    assert by_name(run)["a", "live"].progress == 3


def test_a_batch_that_was_planned_and_not_done_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    for number in range(4):
        (tmp_path / "commits" / str(number)).write_text("v1")
    plan: Any = SimpleNamespace(query=NEAR, stages=[])
    for planned, first, replays in ((3, 0, 0), (4, 0, 1), (14, 10, 1)):
        told = told_at(plan, tmp_path, Owner(tmp_path, "id", "", planned, ("run",), "run", ""), first)
        assert (told.query, told.restarts, told.replays) == ("join", 1, replays)
        assert [mark.kind for mark in told.marks] == ["taken up again", "replay"][: 1 + replays]
        assert told.marks[0].words == f"at batch {planned + 1 - replays}"


def test_waiting_is_measured_from_the_batch_that_brought_a_ts() -> None:
    told = Told()
    told.batch([report(frontier=0, newest=10)], 100.0, 101.0, 101.5)
    told.batch([report(frontier=5, newest=20)], 110.0, 112.0, 112.5)
    told.batch([report(frontier=15, newest=20)], 130.0, 133.0, 133.5)
    run = told.now()
    assert run is not None
    split = run.latency_split_ms
    assert (split["waiting"].samples, split["waiting"].max) == (1, 30_000.0), "10 came at 100 and was passed at 130"
    assert (split["working"].max, split["publishing"].max) == (3000.0, 500.0)
