"""The page's server: what it answers, whom it refuses, and that nothing in it can change a run or show a value of a row."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

import plait
from plait.core.metrics import Metrics, SourceStats
from plait.errors import QueryError, RunError
from plait.watch import server, serving
from plait.watch.serving import Page
from plait.watch.watched import Watched

SECRET = 8_617_263_545


@dataclass
class Told:
    """A run that tells whatever it is given."""

    run: Metrics = field(default_factory=lambda: Metrics(rows=5))
    asked: int = 0

    def __call__(self) -> Metrics:
        self.asked += 1
        return self.run


@pytest.fixture(scope="module")
def told() -> Told:
    return Told()


@pytest.fixture(scope="module")
def page(told: Told) -> Iterator[Page]:
    with Page(Watched(told, "near", "threads"), port=0, hosts=("Plait.Example",), every_s=0.05) as made:
        yield made


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str


def ask(page: Page, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", int(page.url.rpartition(":")[2]), timeout=20)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): text for name, text in headers.items()})
        found = connection.getresponse()
        return Answer(
            found.status, {name.lower(): text for name, text in found.getheaders()}, found.read().decode("utf-8")
        )
    finally:
        connection.close()


PATHS = ("/", "/page.css", "/page.js", "/icon.svg", "/grafana.json", "/now", "/metrics")


@pytest.mark.parametrize("path", PATHS)
def test_it_answers_and_keeps_others_out(page: Page, path: str) -> None:
    found = ask(page, path)
    assert found.status == 200
    assert found.text
    assert {name: found.headers.get(name) for name in server.HEADERS} == server.HEADERS
    assert not [name for name in found.headers if name.startswith("access-control")]
    assert "set-cookie" not in found.headers
    assert "server" not in found.headers


def test_the_page_may_load_nothing_but_itself(page: Page) -> None:
    policy = dict(part.strip().split(" ", 1) for part in server.HEADERS["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    html, script = ask(page, "/").text, ask(page, "/page.js").text
    assert "http://" not in html.replace("http://www.w3.org", "")
    assert "https://" not in html + script
    assert not [word for word in (" style=", "onclick", "<script>", "<form", "<iframe") if word in html]
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
        assert word not in script, word


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
@pytest.mark.parametrize("path", [*PATHS, "/elsewhere"])
def test_there_is_nothing_to_send(page: Page, method: str, path: str) -> None:
    found = ask(page, path, method, b"x=1")
    assert found.status == 405
    assert found.headers["allow"] == "GET"


def test_there_is_nothing_elsewhere(page: Page) -> None:
    for path in (
        "/elsewhere",
        "/static/page.js",
        "/../page.py",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//now",
        "/docs",
        "/openapi.json",
    ):
        found = ask(page, path)
        assert found.status == 404, path
        assert {name: found.headers.get(name) for name in server.HEADERS} == server.HEADERS


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:80", "127.0.0.1", "localhost:9", "LOCALHOST", "[::1]:4747", "10.1.2.3:80", "plait.example:1",
     socket.gethostname()],
)  # fmt: skip
def test_hosts_that_are_answered(page: Page, host: str) -> None:
    assert ask(page, "/now", Host=host).status == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:4747", "localhost.evil.example", "127.0.0.1.evil.example", "", "::1.evil", "0x7f.1", "a b"],
)  # fmt: skip
def test_a_name_that_was_made_to_point_here_is_refused(page: Page, host: str) -> None:
    for path in PATHS:
        found = ask(page, path, Host=host)
        assert found.status == 421
        assert "not called by that name" in found.text


def test_other_sites_are_refused(page: Page) -> None:
    for site in ("cross-site", "same-site"):
        for path in PATHS:
            assert ask(page, path, Sec_Fetch_Site=site, Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="script").status == 403
        # A link may open the page, and nothing else.
        opens = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
        assert ask(page, "/", **opens).status == 200
        assert ask(page, "/now", **opens).status == 403
        assert ask(page, "/", **(opens | {"Sec_Fetch_Dest": "iframe"})).status == 403
    for site in ("same-origin", "none"):
        assert ask(page, "/now", Sec_Fetch_Site=site).status == 200


def test_events_follow_the_run(page: Page, told: Told) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", int(page.url.rpartition(":")[2]), timeout=20)
    connection.request("GET", "/events")
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    numbers, seen = [], 0
    told.run = Metrics(rows=77)
    while seen != 77:
        line = answer.readline().decode()
        if line.startswith("data: "):
            look = json.loads(line[6:])
            numbers.append(look["number"])
            seen = next((int(each["text"]) for each in look["numbers"] if each["name"] == "rows"), 0)
    assert numbers == sorted(set(numbers))
    connection.close()


def test_ten_pages_cost_what_one_does(page: Page, told: Told) -> None:
    before, began = told.asked, time.monotonic()
    for _ in range(50):
        ask(page, "/now")
        ask(page, "/metrics")
    looks = (time.monotonic() - began) / 0.05
    assert told.asked - before <= looks + 2


def test_what_it_shows_has_a_meaning(page: Page) -> None:
    told = json.loads(ask(page, "/now").text)
    assert {each["name"] for each in told["numbers"]} <= set(told["meanings"]["run"])
    for name in ("lag_us", "progress", "silent_s", "waiting", "rows", "holds", "idle", "ended", "late", "behind"):
        assert told["meanings"]["source"][name]
    assert set(told["history"]) == set(told["meanings"]["history"])
    script = ask(page, "/page.js").text
    assert all(f'"{name}"' in script for name in ("busy_s", "share"))


def test_no_value_of_a_row_is_shown() -> None:
    quotes = plait.stream("quotes", unit="us", late="drop", behind="drop", source="feed")
    query = plait.aggregate(quotes, size="10us", by="account", compute={"n": plait.sum("amount")})
    with query.on_threads(workers=2) as run, plait.page(run, port=0) as page:
        for ts in (1, 50, 3, 90):
            run.push("quotes", None, {"ts": [ts], "account": [SECRET], "amount": [SECRET + ts], "feed": ["x"]})
        page.sampling.look()
        shown = "".join(ask(page, path).text for path in PATHS)
        assert "quotes" in shown
        assert str(SECRET)[:6] not in shown


def struck(state: Any, row: Any) -> Any:
    raise ValueError(f"secret {row.amount}")


def test_nor_is_one_in_the_words_of_an_error() -> None:
    quotes = plait.stream("quotes", unit="us")
    query = plait.operator(
        quotes, buckets=1, route=lambda t: 0, state=list, process=struck, output={"n": "int64"}
    )  # fmt: skip
    with query.on_threads(workers=1, plain=True) as run, plait.page(run, port=0) as page:
        run.push("quotes", None, {"ts": [1, 2], "amount": [SECRET, SECRET]})
        with pytest.raises(Exception, match="secret"):
            list(run.results())
        page.sampling.look()
        shown = "".join(ask(page, path).text for path in PATHS)
        assert "The run has failed with" in shown
        assert "secret" not in shown
        assert str(SECRET) not in shown


def test_a_run_that_nobody_has_any_more_is_not_kept() -> None:
    run: Any = plait.aggregate(plait.stream("s", unit="us"), size="10us", compute={"n": plait.count()}).on_threads()
    run.push("s", None, {"ts": [1, 2]})
    page = plait.page(run, port=0)
    assert page.sampling.look().run.phase == "running"
    run.stop()
    del run
    assert page.sampling.look().run.phase == "stopped"
    page.close()
    page.close()


def test_many_sources_are_shown_in_part() -> None:
    sources = tuple(SourceStats(stream="s", source=k, progress=k, rows=1) for k in range(5000))
    with Page(Watched(lambda: Metrics(sources=sources), "many", "threads"), port=0) as page:
        told = json.loads(ask(page, "/now").text)
        assert (len(told["sources"]), told["sources_in_all"]) == (200, 5000)
        assert [each["name"] for each in told["sources"][:2]] == ["0", "1"]


def test_a_run_that_does_not_answer_leaves_the_last_look(page: Page) -> None:
    def broken() -> Metrics:
        if broken.times:  # type: ignore[attr-defined]
            raise RuntimeError("in the middle of its end")
        return Metrics(rows=3)

    broken.times = 0  # type: ignore[attr-defined]
    with Page(Watched(broken, "broken", "threads"), port=0, every_s=0.02) as made:
        broken.times = 1  # type: ignore[attr-defined]
        time.sleep(0.2)
        assert ask(made, "/now").status == 200
        broken.times = 0  # type: ignore[attr-defined]
        number = made.sampling.latest.number
        until = time.monotonic() + 20
        while made.sampling.latest.number == number and time.monotonic() < until:
            time.sleep(0.02)
        assert made.sampling.latest.number > number


# --- where it is ----------------------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_named(page: Page) -> None:
    port = int(page.url.rpartition(":")[2])
    with pytest.raises(RunError, match=f"can't be served at 127.0.0.1:{port}"):
        Page(Watched(Metrics, "a", "threads"), port=port)
    with pytest.raises(RunError, match=r"can't be served at 256\.1\.1\.1:4747"):
        Page(Watched(Metrics, "a", "threads"), host="256.1.1.1", port=4747)


def test_the_next_port_that_is_free(monkeypatch: pytest.MonkeyPatch, page: Page) -> None:
    monkeypatch.setattr(serving, "PORT", int(page.url.rpartition(":")[2]))
    with Page(Watched(Metrics, "a", "threads")) as other:
        assert other.url != page.url
        assert other.url.startswith("http://127.0.0.1:")


def test_it_is_for_loopback_unless_told_otherwise(page: Page) -> None:
    assert page._server._socket.getsockname()[0] == "127.0.0.1"


def test_what_is_no_run_is_refused() -> None:
    with pytest.raises(QueryError, match="page of a dict"):
        plait.page({})


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.delitem(sys.modules, "plait.watch.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(RunError, match=r'needs uvicorn, which is not installed.*pip install "plait\[page\]"'):
        Page(Watched(Metrics, "a", "threads"), port=0)
