"""The page's server: Starlette on uvicorn, in a thread of its own. It serves files and JSON, and takes nothing in.

Who may have it. Every answer is to a GET; there is nothing to send. A request is refused unless

- its Host is a numeric address, localhost, this machine's name, or one that was given when the page was made: else a page from
  elsewhere could have its own name point here (DNS rebinding), and read everything as its own;
- no other site has made the browser ask (`Sec-Fetch-Site`), but for a link that opens the page itself.

No other origin may read an answer (no CORS), frame the page or load its parts, and the page itself runs and loads nothing but its
own files (Content-Security-Policy). Held by tests/watch/test_server.py.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import threading
import time
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from plait.core.metrics import EXECUTORS, THREADS
from plait.errors import RunError
from plait.watch import prometheus
from plait.watch.sampling import Look, Sampling
from plait.watch.snapshot import meanings

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/grafana.json": ("grafana.json", "application/json"),
}
#: How often an open page is told that it still has its server, where nothing is new.
ALIVE_S = 10.0
#: Connections at once: a page has one that stays open, and few others.
CONNECTIONS = 64


class Server:
    """One page's. The port is taken when it is made; it answers from `serve` on."""

    def __init__(self, host: str, port: int | None, tried: int, usual: int, hosts: tuple[str, ...] = ()) -> None:
        ports = range(usual, usual + tried) if port is None else (port,)
        self._socket = _bound(host, ports)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self._hosts = {name.lower() for name in (host, "localhost", socket.gethostname(), *hosts)}
        self._uvicorn: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{self.port}"

    def serve(self, sampling: Sampling) -> None:
        """Answer from now on; returns when it does."""
        app = Guarded(application(sampling, lambda: self._uvicorn is None or self._uvicorn.should_exit), self._hosts)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, server_header=False, date_header=False, lifespan="off", ws="none",
            http="h11", loop="asyncio", limit_concurrency=CONNECTIONS, timeout_graceful_shutdown=2, timeout_keep_alive=20,
        )  # fmt: skip
        self._uvicorn = made = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=made.run, kwargs={"sockets": [self._socket]}, name="plait-page", daemon=True
        )
        self._thread.start()
        until = time.monotonic() + 10
        while not made.started and self._thread.is_alive() and time.monotonic() < until:
            time.sleep(0.005)

    def close(self) -> None:
        """Answer no more. Whoever has the page open is told."""
        if self._uvicorn is not None and self._thread is not None:
            self._uvicorn.should_exit = True
            self._thread.join(timeout=10)
        self._socket.close()


def _bound(host: str, ports: Any) -> socket.socket:
    """A socket on the first of these ports that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    failed: OSError | None = None
    for port in ports:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, port))
            made.listen(128)
        except (OSError, OverflowError) as error:
            made.close()
            failed = error if isinstance(error, OSError) else OSError(str(error))
            continue
        return made
    raise RunError(f"The page can't be served at {host}:{ports[0]}", why=str(failed), do="Name another address or port")


# --- what is answered ---------------------------------------------------------------------------------------------


def application(sampling: Sampling, over: Any) -> Starlette:
    """All that there is to ask for."""

    async def now(request: Request) -> Response:
        """The last look, with all before it, and what each number says."""
        look = sampling.latest
        told = look.shown | {"number": look.number, "history": sampling.history.columns, "meanings": meanings(look.run)}
        return Response(_json(told), media_type="application/json")

    async def metrics(request: Request) -> Response:
        look = sampling.latest
        text = prometheus.text(look.run, sampling.watched.reason(look.run), *_whose(sampling))
        return Response(text, headers={"content-type": prometheus.CONTENT_TYPE})

    async def events(request: Request) -> Response:
        return StreamingResponse(_events(sampling, over), media_type="text/event-stream")

    routes = [Route(path, _file(*file), methods=["GET"]) for path, file in FILES.items()]
    answers = {"/now": now, "/events": events, "/metrics": metrics}
    return Starlette(routes=[*routes, *(Route(path, answer, methods=["GET"]) for path, answer in answers.items())])


def _whose(sampling: Sampling) -> tuple[str, str]:
    """The query's name and its executor. The reference fills what threads do."""
    executor = sampling.watched.executor
    return sampling.watched.title, executor if executor in EXECUTORS else THREADS


async def _events(sampling: Sampling, over: Any) -> AsyncIterator[str]:
    """Each look as a server-sent event, from the last one on; "end" when nobody serves any more."""
    number, told = -2, time.monotonic()
    while not over():
        look = sampling.latest
        if look.number != number:
            number, told = look.number, time.monotonic()
            yield f"data: {_json(_event(look))}\n\n"
        elif time.monotonic() - told > ALIVE_S:
            told = time.monotonic()
            yield ": still here\n\n"
        await asyncio.sleep(0.2)
    yield "event: end\ndata: {}\n\n"


def _event(look: Look) -> dict[str, Any]:
    return look.shown | {"number": look.number, "point": look.point}


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _file(name: str, kind: str) -> Any:
    text = resources.files("plait.watch").joinpath("static", name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(text, media_type=kind)

    return answer


# --- who may ask --------------------------------------------------------------------------------------------------


class Guarded:
    """An ASGI application in front of another one: it answers those who may ask, with headers that keep others out."""

    def __init__(self, app: Any, hosts: set[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", ()), *((name.encode(), text.encode()) for name, text in HEADERS.items())
                ]  # fmt: skip
            await send(message)

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refusal(scope["method"], scope["path"], headers)
        if refused is not None:
            status, words = refused
            allow = {"allow": "GET"} if status == 405 else {}
            await PlainTextResponse(words + "\n", status, headers=allow)(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)

    def _refusal(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str] | None:
        """Why a request is not answered: a status and words."""
        if method not in ("GET", "HEAD"):
            return 405, "This page only shows: there is nothing to send to it."
        host = _bare(headers.get("host", ""))
        if not (host in self._hosts or _is_address(host)):
            return (
                421,
                "This page is not called by that name: ask for it by its address, or name hosts= where it is made.",
            )
        site = headers.get("sec-fetch-site", "none")
        opens = (
            headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document" and path == "/"
        )
        if site not in ("none", "same-origin") and not opens:
            return 403, "Another site has asked for this: open the page itself."
        return None


def _bare(host: str) -> str:
    """A Host without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if host.count(":") == 1 else host.lower()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
