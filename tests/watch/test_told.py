"""Logs, spans and the history: what is told of a run besides its page."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import plait
from plait.core.metrics import Mark, Metrics, Quantiles, SourceStats
from plait.watch import history, log, spans
from plait.watch.history import History
from plait.watch.sampling import Look, Sampling
from plait.watch.watched import Watched

T = 1_763_542_933_000_000


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    out = io.StringIO()
    level = log.LOGGER.level
    handler = log.to_json_lines(out)
    yield out
    log.LOGGER.removeHandler(handler)
    log.LOGGER.setLevel(level)


def written(lines: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def held_up(silent_s: float) -> Metrics:
    source = SourceStats(stream="q\nx", source="y", progress=T, silent_s=silent_s, waiting=3, holds=True)
    return Metrics(rows=9, frontier=T, newest=T + 5, holder=("q\nx", "y"), waiting={"q\nx": 3}, sources=(source,))


def test_a_reason_is_logged_when_it_changes(lines: io.StringIO) -> None:
    watched = Watched(Metrics, 'near "x"\n', "threads")
    reasons = log.Reasons(watched)
    for number, silent_s in enumerate((0.1, 0.2, 5.0, 6.0, 0.1)):
        reasons.look(Look(number, held_up(silent_s)))
    found = written(lines)
    assert [each["kind"] for each in found] == ["flowing", "held", "flowing"]
    assert [each["level"] for each in found] == ["info", "warning", "info"]
    assert found[1]["message"] == "Held at 09:02:13 by source q\\nx/y, silent for 5.0 s; 3 rows wait"
    assert found[1]["query"] == 'near "x"\\n'
    assert (found[1]["rows"], found[1]["frontier"]) == (9, T)
    assert found[1]["time"].endswith("+00:00")


def test_a_batch_is_logged_with_query_and_batch(lines: io.StringIO) -> None:
    log.batch_done("near", 7, Metrics(rows=3, results=2, late={"a": 1}, frontier=-(2**63)))
    (found,) = written(lines)
    assert (found["query"], found["batch"], found["kind"], found["rows"], found["late"]) == ("near", 7, "batch", 3, 1)
    assert "frontier" not in found, "before all is no moment"


def test_an_error_is_logged_without_its_words(lines: io.StringIO) -> None:
    try:
        raise plait.DataError("account 8617 is wrong")
    except plait.DataError:
        log.LOGGER.error("failed", exc_info=True, extra={"query": "near"})
    (found,) = written(lines)
    assert found["error"] == "DataError"
    assert "8617" not in lines.getvalue()


def test_nobody_is_told_who_has_not_asked(capfd: pytest.CaptureFixture[str]) -> None:
    log.LOGGER.warning("held")
    assert capfd.readouterr().err == ""
    assert logging.getLogger("plait") is log.LOGGER


# --- spans ------------------------------------------------------------------------------------------------------


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    return exporter


def test_a_run_and_its_epochs_are_spans(exported: InMemorySpanExporter) -> None:
    s = plait.stream("s", unit="us")
    with plait.aggregate(s, size="10us", by="k", compute={"n": plait.count()}).on_threads(elastic=2, workers=1) as run:
        looks = spans.Spans("near\n")
        run.push("s", None, {"ts": [1, 12, 30], "k": [1, 2, 3]})
        run.resize(2)
        run.push("s", None, {"ts": [31, 42, 60], "k": [1, 2, 3]})
        looks.look(run.watched())
        looks.look(run.watched())
        run.drain()
        list(run.results())
        looks.look(run.watched())
        looks.look(run.watched())
    found = exported.get_finished_spans()
    assert [each.name for each in found] == ["plait.started", "plait.provision", "plait.run"]
    assert {each.attributes["plait.query"] for each in found} == {"near\\n"}
    assert (found[-1].attributes["plait.rows"], found[-1].attributes["plait.phase"]) == (6, "ended")
    assert found[-1].end_time - found[-1].start_time > 0


def test_a_batch_is_a_span(exported: InMemorySpanExporter) -> None:
    spans.batch("near", 3, Metrics(rows=5, results=2), 10.0, 12.5)
    (found,) = exported.get_finished_spans()
    assert (found.name, found.start_time, found.end_time) == ("plait.batch", 10_000_000_000, 12_500_000_000)
    assert dict(found.attributes) == {"plait.query": "near", "plait.batch": 3, "plait.results": 2, "plait.rows": 5}


def test_without_opentelemetry_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert spans.tracer() is None
    spans.batch("near", 3, Metrics(), 10.0, 12.5)
    spans.Spans("near").look(Metrics(marks=(Mark(1.0, "started", ""),), phase="ended"))


# --- the history ------------------------------------------------------------------------------------------------


def test_rates_are_those_of_the_last_looks() -> None:
    past = History()
    for second in range(10):
        split = {"waiting": Quantiles(2.0, 9.0, 9.0, 5)} if second > 5 else {}
        point = past.add(float(second), Metrics(rows=100 * second, results=7 * second, latency_split_ms=split))
    assert (point["rows_s"], point["results_s"], point["waiting_ms"], point["working_ms"]) == (100.0, 7.0, 2.0, None)
    columns = past.columns
    assert columns["rows_s"][0] is None
    assert {len(values) for values in columns.values()} == {10}
    assert set(columns) == set(history.COLUMNS)


def test_what_an_earlier_start_has_counted_is_no_rate() -> None:
    past = History()
    past.add(1.0, Metrics(phase="starting"))
    assert past.add(2.0, Metrics(rows=10**9))["rows_s"] is None
    assert past.add(3.0, Metrics(rows=10**9 + 5))["rows_s"] == 5.0
    assert past.add(4.0, Metrics(rows=3))["rows_s"] is None, "a run that has begun anew"


def test_a_long_run_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST", 40)
    past = History()
    for second in range(1000):
        past.add(float(second), Metrics(rows=second))
        at = past.columns["at"]
        assert len(at) <= 40
        assert at == sorted(at)
    assert past.columns["at"][-20:] == [float(second) for second in range(980, 1000)]
    assert past.columns["at"][0] < 100, "something is left of the beginning"


def test_an_end_is_marked_once() -> None:
    told = [Metrics(phase="running", marks=(Mark(1.0, "started", ""),))]
    sampling = Sampling(Watched(lambda: told[0], "a", "threads"), every_s=1000)
    for phase in ("running", "failed: LateError", "failed: LateError"):
        told[0] = Metrics(phase=phase, marks=(Mark(1.0, "started", ""),))
        look = sampling.look()
    assert [mark.kind for mark in look.run.marks] == ["started", "failed"]
    assert len(told[0].marks) == 1, "what was told is not changed"
    sampling.stop()


def test_a_look_that_fails_is_told_once_by_its_kind(caplog: pytest.LogCaptureFixture) -> None:
    """Else a page would show the same for ever, and nobody would know why. Words may hold a value, a kind does not."""
    looks, told = 0, threading.Event()

    def tell() -> Metrics:
        nonlocal looks
        looks += 1
        if looks > 4:
            told.set()
        if looks > 1:
            raise ValueError("secret 17")
        return Metrics()

    with caplog.at_level("WARNING", logger="plait"):
        sampling = Sampling(Watched(tell, "a", "threads"), every_s=0.001)
        try:
            assert told.wait(30)
        finally:
            sampling.stop()
    (record,) = [each for each in caplog.records if "could not look" in each.getMessage()]
    assert "ValueError" in record.getMessage()
    assert "secret" not in caplog.text
    assert sampling.latest.number == 0
