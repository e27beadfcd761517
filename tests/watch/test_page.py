"""The page in a real browser: what it says while a run goes on, is held up and ends; names from data; narrow and dark screens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.watch.browser import WHY_NOT, Tab, browser, found

import plait
from plait.core.held import OnThreads
from plait.core.metrics import Mark, Metrics, OperatorStats, Quantiles, SourceStats, shared_out
from plait.threads.stats import WorkerStats
from plait.watch.serving import Page
from plait.watch.watched import Watched

pytestmark = pytest.mark.skipif(found() is None, reason=WHY_NOT)

T = 1_763_542_933_000_000
EVIL = "<img src=x onerror=window.struck=1><script>window.struck=1</script>"


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    path = found()
    assert path is not None
    with browser(path) as made:
        yield made


def text(tab: Tab, selector: str) -> str:
    return str(tab.run(f"document.querySelector({selector!r}).innerText"))


def is_live(tab: Tab) -> None:
    tab.wait("document.querySelector('#live.on') !== null")


def test_a_run_from_its_start_to_its_end(tab: Tab) -> None:
    quotes = plait.stream("quotes", unit="us", source="feed", sources=["x", "y"])
    trades = plait.stream("trades", unit="us")
    near = plait.join(quotes, trades, on="quotes.p = trades.p", within="1s")
    with near.on_threads(workers=2) as run:
        page = plait.page(run, port=0)
        tab.complaints()
        tab.open(page.url)
        is_live(tab)
        assert "Starting: the columns of stream quotes" in text(tab, "#sentence")
        for feed in "xy":
            run.push("quotes", None, {"ts": [T, T + 1000], "p": [1, 1], "feed": [feed] * 2})
        run.push("trades", None, {"ts": [T, T + 5_000_000], "p": [1, 1]})
        run.push("quotes", None, {"ts": [T + 4_000_000], "p": [1], "feed": ["x"]})
        next(run.results())
        tab.wait("document.querySelector('#sentence').innerText.startsWith('Held at')")
        assert "by source quotes/y, silent for" in text(tab, "#sentence")
        assert tab.run("document.querySelector('#sources tbody tr.holds td.name').innerText").startswith("quotes/y")
        # The remedy does what it says: it is what the page has to copy.
        remedy = str(tab.run("document.querySelector('#remedies code').innerText"))
        assert remedy == f"run.heartbeat('quotes', 'y', {T + 5_000_000})"
        eval(remedy, {"run": run})
        tab.wait("!document.querySelector('#sentence').innerText.includes('quotes/y')")
        shown = tab.run("[...document.querySelectorAll('#graph g text')].map(e => e.firstChild.data)")
        assert set(shown) >= {"quotes", "trades", "join", "results"}
        assert tab.run("document.querySelectorAll('#parts .part').length") == 2
        run.drain()
        assert run.table().num_rows > 0
        tab.wait(
            "document.querySelector('#sentence').innerText.startsWith('The input has ended, and every result is out')"
        )
        assert "ended" in text(tab, "#marks")
        page.close()
        tab.wait("document.querySelector('#live.off') !== null")
        assert tab.complaints() == []


def test_names_are_shown_and_never_read_as_markup(tab: Tab) -> None:
    source = SourceStats(stream=EVIL, source=EVIL, progress=T, silent_s=99.0, waiting=3, holds=True)
    run = Metrics(
        frontier=T, newest=T + 5, holder=(EVIL, EVIL), waiting={EVIL: 3}, sources=(source,), marks=(Mark(1.0, EVIL, EVIL),),
        operators=(OperatorStats(operator=0, label=EVIL, inputs=(EVIL,)),),
    )  # fmt: skip
    with Page(Watched(lambda: run, EVIL, "threads", OnThreads()), port=0, every_s=0.1) as page:
        tab.open(page.url)
        is_live(tab)
        tab.wait("document.querySelectorAll('#remedies li').length === 3")
        assert EVIL in text(tab, "#sentence")
        assert EVIL in text(tab, "#title")
        assert tab.run("document.querySelectorAll('main img, main script, main iframe').length") == 0
        assert tab.run("window.struck === undefined")
        tab.complaints()


def many() -> Metrics:
    """As much as a page may have to show, with long names."""
    long = "a-source-with-a-very-long-name-" * 3
    sources = tuple(
        SourceStats(stream="clicks", source=f"{long}{k}", progress=T + k, newest=T + k, lag_us=10**7 - k, silent_s=9.0,
                    rows=10**9, waiting=12_345_678, late=k, holds=k == 0)
        for k in range(30)
    )  # fmt: skip
    workers = shared_out([
        WorkerStats(worker=k, tuples=10**7, busy_s=10.0 + 90 * (k == 3), comparisons=10**12, held_bytes=10**9, operator=k % 2,
                    tuples_per_s=1.0, comparisons_per_s=1.0, waiting_for="is working")
        for k in range(16)
    ])  # fmt: skip
    run = Metrics(
        rows=10**10, results=10**9, frontier=T, newest=T + 10**7, holder=("clicks", sources[0].source), sources=sources,
        waiting={"clicks": 123_456_789}, seconds=9.0, state_bytes=10**10,
        operators=(
            OperatorStats(operator=0, label=long, inputs=("#1", "clicks")),
            OperatorStats(operator=1, label="join", inputs=("clicks", "views")),
        ),
        latency_split_ms={name: Quantiles(12.5, 99.0, 1000.0, 9) for name in ("waiting", "working", "publishing")},
        marks=tuple(Mark(time.time(), "provision", "2 to 3 threads, load above 90%") for _ in range(30)),
    )  # fmt: skip
    run.__class__ = type("Run", (Metrics,), {"parts": property(lambda self: workers)})
    return run


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 768, 1280])
def test_it_fits_narrow_and_dark_screens(tab: Tab, width: int, dark: bool) -> None:
    rows = [0]

    def tell() -> Metrics:
        rows[0] += 10**6
        return replace_rows(many(), rows[0])

    with Page(Watched(tell, "clicks near views", "threads", OnThreads()), port=0, every_s=0.1) as page:
        tab.complaints()
        tab.open(page.url, width=width, dark=dark)
        is_live(tab)
        tab.wait("document.querySelectorAll('polyline').length >= 5")
        assert tab.run("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the screen"
        # No text lies outside of what holds it, but where one can scroll.
        outside = tab.run(
            "[...document.querySelectorAll('section *')].filter(e => !e.closest('.scroll') && !e.closest('svg') && "
            "e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
        )
        assert outside == []
        assert tab.run(LEAST_CONTRAST) >= 4.0
        assert tab.complaints() == []


def replace_rows(run: Metrics, rows: int) -> Metrics:
    run.rows = rows
    return run


#: The least contrast of any text with what lies behind it, as WCAG has it: 4.5 is what it asks of small text, 3 of large.
LEAST_CONTRAST = """(() => {
  const parse = (c) => { const n = c.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const shine = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
  const own = (e) => parse(getComputedStyle(e).backgroundColor);
  const behind = (e) => { for (; e; e = e.parentElement) if (own(e)[3] > 0) return own(e); return [255, 255, 255, 1]; };
  let least = 21;
  for (const e of document.querySelectorAll('main *, header *')) {
    if (e.closest('svg') || ![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.offsetParent) continue;
    const a = shine(parse(getComputedStyle(e).color)), b = shine(behind(e));
    least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return least;
})()"""


def test_a_number_explains_itself_on_hover_and_by_keyboard(tab: Tab) -> None:
    with Page(Watched(many, "clicks", "threads", OnThreads()), port=0, every_s=0.1) as page:
        tab.open(page.url)
        is_live(tab)
        tab.wait("document.querySelectorAll('#sources tbody tr').length === 30")
        tab.run("document.querySelector('#sources th').dispatchEvent(new PointerEvent('pointerover', {bubbles: true}))")
        assert "its name; None stands for sources of the stream that are not known yet" in text(tab, "#tip")
        tab.run("document.querySelector('#sources th:nth-child(4)').focus()")
        assert "how long it has been silent" in text(tab, "#tip")
        unexplained = tab.run(
            "[...document.querySelectorAll('.tile, #sources th, #numbers div, .part .track')].filter(e => !e.dataset.tip).length"
        )
        assert unexplained == 0
        tab.complaints()


def test_it_comes_back_when_a_run_begins_anew(tab: Tab) -> None:
    first = Page(Watched(lambda: Metrics(rows=1), "first", "threads"), port=0, every_s=0.1)
    port = int(first.url.rpartition(":")[2])
    tab.open(first.url)
    is_live(tab)
    first.close()
    tab.wait("document.querySelector('#live.off') !== null")
    with Page(Watched(lambda: Metrics(rows=2), "second", "threads"), port=port, every_s=0.1) as second:
        tab.open(second.url)
        tab.wait("document.querySelector('#title').innerText === 'second'")
        is_live(tab)
        tab.complaints()


def test_a_complaint_would_be_seen(tab: Tab) -> None:
    """A test that can't fail is none: what the page must not do is noticed."""
    with Page(Watched(Metrics, "a", "threads"), port=0) as page:
        tab.open(page.url)
        is_live(tab)
        tab.complaints()
        tab.run(
            "document.body.insertAdjacentHTML('beforeend', '<img src=\"http://plait.invalid/x.png\"><i onclick=\"1\"></i>')"
        )
        found: list[Any] = []
        until = time.monotonic() + 20
        while not found and time.monotonic() < until:
            found += tab.complaints()
            time.sleep(0.05)
        assert any("Content Security Policy" in each for each in found)
        assert replace(Mark(1.0, "a", "b"), at=2.0).at == 2.0
