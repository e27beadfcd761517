"""`plait run --page`, `--log-json`, and `plait top`."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from tests.watch.test_page import many

from plait.cli import progress
from plait.cli.main import cli
from plait.cli.progress import Display, Show
from plait.core.held import InFile
from plait.core.metrics import Metrics
from plait.errors import PlaitError, QueryError
from plait.watch.serving import Page
from plait.watch.watched import Watched

EXAMPLES = Path(__file__).parents[2] / "examples"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What pages tell in the last look, when the run has ended and they are still there."""
    found: list[dict[str, Any]] = []

    class Seen(Page):
        def close(self) -> None:
            with urllib.request.urlopen(f"{self.url}/now") as answer:
                found.append(json.load(answer))
            super().close()

    monkeypatch.setattr(progress, "Page", Seen)
    return found


@pytest.mark.parametrize("engine", ["threads", "reference"])
@pytest.mark.parametrize("example", ["band_join.toml", "meters.toml"])
def test_a_run_with_a_page(looked: list[dict[str, Any]], tmp_path: Path, engine: str, example: str) -> None:
    out = tmp_path / "out.parquet"
    done = invoke("run", "--page=0", str(EXAMPLES / example), "--engine", engine, "-o", str(out))
    assert done.exit_code == 0, done.output
    assert re.search(
        r"^plait: page at http://127\.0\.0\.1:\d+ \(plait top http://127\.0\.0\.1:\d+\)$", done.stderr, re.MULTILINE
    )
    (told,) = looked
    assert told["title"] == example
    assert told["executor"] == engine
    assert told["reason"]["kind"] == "ended"
    rows = pq.read_metadata(out).num_rows
    assert f"every result is out: {rows:,}" in told["reason"]["words"]


def test_page_alone_takes_no_value(looked: list[dict[str, Any]], tmp_path: Path) -> None:
    """What follows `--page` is FILE."""
    done = invoke(
        "run", "--page", str(EXAMPLES / "meters.toml"), "--engine", "reference", "-q", "-o", str(tmp_path / "x.csv")
    )
    assert done.exit_code == 0
    assert done.stderr == "", "quiet is quiet"
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("given", "place"),
    [("", ("127.0.0.1", None)), ("8080", ("127.0.0.1", 8080)), ("0.0.0.0:80", ("0.0.0.0", 80)), ("host", ("host", None)),
     ("[::1]:9", ("::1", 9)), ("0", ("127.0.0.1", 0))],
)  # fmt: skip
def test_places(given: str, place: tuple[str, int | None]) -> None:
    assert Show(page=given).place() == place


@pytest.mark.parametrize("given", ["a:b", "host:", "127.0.0.1:99999", "70000"])
def test_what_is_no_place(given: str) -> None:
    if given == "host:":
        assert Show(page=given).place() == ("host", None)
        return
    with pytest.raises(QueryError, match="is no place"):
        Show(page=given).place()


def test_a_run_that_fails_says_so(looked: list[dict[str, Any]], tmp_path: Path) -> None:
    file = tmp_path / "q.toml"
    (tmp_path / "a.csv").write_text("ts,x\n9,1\n2,2\n")
    query = 'kind = "aggregate"\ninput = "a"\nsize = "5us"\n[query.compute]\nn = "count()"\n'
    file.write_text(f'[streams.a]\npath = "a.csv"\nunit = "us"\n[query]\n{query}')
    with pytest.raises(PlaitError):
        invoke("run", str(file), "--engine", "reference", "--page=0", "-o", str(tmp_path / "x.csv"))
    assert [each["phase"] for each in looked] == ["failed: LateError"]
    assert "The run has failed with LateError" in looked[0]["reason"]["words"]


def test_log_json(tmp_path: Path) -> None:
    done = invoke(
        "run",
        str(EXAMPLES / "meters.toml"),
        "--engine",
        "threads",
        "--log-json",
        "--page=0",
        "-o",
        str(tmp_path / "x.csv"),
    )
    assert done.exit_code == 0
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert found
    assert all(each["query"].startswith("meters.toml") for each in found)
    assert any(each["message"] == "page" and each["url"].startswith("http://127.0.0.1:") for each in found)


def test_batches_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    with Display("q.toml on spark", show=Show(log_json=True)) as display:
        display.batch(3, Metrics(rows=5))
    (line,) = capsys.readouterr().err.splitlines()
    assert (json.loads(line)["batch"], json.loads(line)["rows"]) == (3, 5)


def test_progress_says_why_results_are_held(capsys: pytest.CaptureFixture[str]) -> None:
    with Display("q.toml on spark") as display:
        display.batch(3, many())
    assert "; Held at 09:02:13 by source clicks/a-source" in capsys.readouterr().err


def test_top(monkeypatch: pytest.MonkeyPatch) -> None:
    with Page(Watched(many, "clicks", "threads", InFile()), port=0) as page:
        done = invoke("top", page.url, "--once")
        assert done.exit_code == 0
        assert "clicks on threads" in done.output
        assert "Held at 09:02:13" in done.output
    told = [Metrics(phase="running")]
    with Page(Watched(lambda: told[0], "b", "threads"), port=0, every_s=0.05) as page:
        threading.Timer(0.5, lambda: told.__setitem__(0, Metrics(phase="ended"))).start()
        began = time.monotonic()
        assert invoke("top", page.url, "--every", "0.2").exit_code == 0
        assert 0.4 < time.monotonic() - began < 30
