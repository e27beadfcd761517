"""`plait top`: what the page shows, in a terminal."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from rich.console import Console
from tests.watch.test_page import many

import plait
from plait.core.held import OnThreads
from plait.core.metrics import Metrics, SourceStats
from plait.errors import DataError, QueryError
from plait.watch import top
from plait.watch.serving import Page
from plait.watch.watched import Watched

T = 1_763_542_933_000_000


def seen(page: Page, width: int = 110, **how: Any) -> str:
    out = io.StringIO()
    top.watch(page.url, once=True, console=Console(file=out, width=width, force_terminal=False), **how)
    return out.getvalue()


def test_it_shows_what_the_page_does() -> None:
    quotes = plait.stream("quotes", unit="us", source="feed", sources=["x", "y"])
    query = plait.aggregate(quotes, size="1s", by="p", compute={"n": plait.count()})
    with query.on_threads(workers=2) as run, plait.page(run, port=0) as page:
        run.push("quotes", None, {"ts": [T, T + 1000], "p": [1, 1], "feed": ["x", "y"]})
        run.push("quotes", None, {"ts": [T + 2000], "p": [1], "feed": ["x"]})
        page.sampling.look()
        shown = seen(page)
    assert "aggregate on threads" in shown
    assert "Results flow, up to 09:02:13" in shown or "Held at 09:02:13 by source quotes/y" in shown
    assert "quotes/y (holds)" in shown
    assert "operator 0, 1" in shown
    assert "started: aggregate" in shown


@pytest.mark.parametrize("width", [40, 80, 200])
def test_it_fits(width: int) -> None:
    with Page(Watched(many, "clicks", "threads", OnThreads()), port=0) as page:
        lines = seen(page, width).splitlines()
    assert max(map(len, lines)) <= width
    assert any("Held at 09:02:13" in line for line in lines)


def test_a_name_can_do_nothing_to_a_terminal() -> None:
    evil = "\x1b]0;struck\x07\x1b[2J[bold red]x[/]\u202e"
    source = SourceStats(stream=evil, source=evil, progress=T, silent_s=99.0, waiting=3, holds=True)
    run = Metrics(frontier=T, newest=T + 5, holder=(evil, evil), waiting={evil: 3}, sources=(source,))
    with Page(Watched(lambda: run, evil, "threads", OnThreads()), port=0) as page:
        shown = seen(page, 300)
    assert all(letter.isprintable() or letter == "\n" for letter in shown)
    assert "[bold red]x[/]" in shown


def test_nor_can_a_server_that_is_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {
        "phase": "\x1b[2J",
        "title": "\x1b[2J",
        "executor": "x",
        "frontier": "\x1b[2J",
        "parts": [],
        "sources": [],
        "marks": [],
    }
    now |= {"latency": {"\x1b[2J": {"p50": 1.0}}, "reason": {"kind": "held", "words": "\x1b[2J", "remedies": []}}
    monkeypatch.setattr(top, "asked", lambda url: now)
    out = io.StringIO()
    top.watch("x", once=True, console=Console(file=out, width=90, force_terminal=False))
    assert "\x1b" not in out.getvalue()


def test_it_ends_with_the_run() -> None:
    told = [Metrics(phase="running")]
    with Page(Watched(lambda: told[0], "a", "threads"), port=0, every_s=0.05) as page:
        out = io.StringIO()
        console = Console(file=out, width=90, force_terminal=False)
        thread = threading.Thread(target=top.watch, args=(page.url,), kwargs={"every_s": 0.05, "console": console})
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        told[0] = Metrics(phase="ended")
        thread.join(20)
        assert not thread.is_alive()


def test_where_there_is_no_page() -> None:
    with pytest.raises(DataError, match=r"There is no page at http://127\.0\.0\.1:1"):
        top.asked("127.0.0.1:1")
    with Page(Watched(Metrics, "a", "threads"), port=0) as page:
        with pytest.raises(DataError, match="There is no page"):
            top.asked(page.url + "/page.js?")
        assert top.asked(page.url + "/")["title"] == "a"


def test_what_is_no_page_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("urllib.request.urlopen", lambda *a, **k: io.BytesIO(b"[1]"))
    with pytest.raises(QueryError, match="is no page of plait's"):
        top.asked("http://127.0.0.1:1")
