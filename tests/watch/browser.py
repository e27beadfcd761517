"""Chromium, driven through its pipe (the DevTools protocol, messages that end with a zero byte): nothing else is needed.

`found()` says where there is one; a test that has none is skipped, and says so.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WAIT_S = 30.0


def found() -> str | None:
    """A Chromium: that of PLAIT_CHROMIUM, or the first on the path."""
    return os.environ.get("PLAIT_CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


WHY_NOT = "no Chromium here: apt-get install chromium, or name one in PLAIT_CHROMIUM"


class Tab:
    """One open page."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._number, self._answers = send, 0, {}
        self.events: Queue[dict[str, Any]] = Queue()
        self._changed = threading.Condition()
        self._session: str | None = None
        threading.Thread(target=self._read, args=(receive,), daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _read(self, receive: int) -> None:
        left = b""
        while data := os.read(receive, 1 << 20):
            *whole, left = (left + data).split(b"\0")
            for each in whole:
                message = json.loads(each)
                if "id" not in message:
                    self.events.put(message)
                    continue
                with self._changed:
                    self._answers[message["id"]] = message
                    self._changed.notify_all()

    def call(self, method: str, **parameters: Any) -> Any:
        """Ask, and wait for the answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        with self._changed:
            assert self._changed.wait_for(lambda: number in self._answers, WAIT_S), f"no answer to {method}"
            answer = self._answers.pop(number)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Go there, as a screen of this size has it."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])
        self.call("Page.navigate", url=url)

    def run(self, expression: str) -> Any:
        """What an expression comes to there."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, expression: str, seconds: float = WAIT_S) -> Any:
        """Until an expression is true there; gives it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with contextlib.suppress(AssertionError):  # what it names is not there before the page is
                if value := self.run(expression):
                    return value
            time.sleep(0.05)
        raise AssertionError(f"{expression} did not come true; the page says {self.run('document.body.innerText')!r}")

    def picture(self, file: Path) -> None:
        """All of the page, as it looks."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        told = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        file.write_bytes(base64.b64decode(told["data"]))

    def complaints(self) -> list[str]:
        """What the browser has complained of so far: errors of scripts, refused loads, requests to elsewhere."""
        found = []
        while True:
            try:
                event = self.events.get_nowait()
            except Empty:
                return found
            told = event["params"]
            if event["method"] == "Log.entryAdded" and told["entry"]["level"] == "error":
                found.append(told["entry"]["text"])
            elif event["method"] == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
            elif event["method"] == "Network.requestWillBeSent" and "127.0.0.1" not in told["request"]["url"]:
                found.append(f"asked for {told['request']['url']}")


@contextmanager
def browser(path: str) -> Iterator[Tab]:
    """A Chromium of its own, with one page open."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        to_read, to_send = os.pipe()
        to_receive, to_write = os.pipe()
        theirs = [fcntl.fcntl(each, fcntl.F_DUPFD, 20) for each in (to_read, to_write)]
        command = [
            path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
            "--disable-background-networking", "--no-first-run", f"--user-data-dir={home}", "--remote-debugging-pipe",
        ]  # fmt: skip
        # It reads from its file 3 and writes to its file 4.
        actions = [
            *((os.POSIX_SPAWN_OPEN, own, os.devnull, os.O_WRONLY, 0) for own in (1, 2)),
            *((os.POSIX_SPAWN_DUP2, file, own) for file, own in zip(theirs, (3, 4), strict=True)),
        ]
        process = os.posix_spawn(path, command, os.environ, file_actions=actions)
        for each in (to_read, to_write, *theirs):
            os.close(each)
        try:
            yield Tab(to_send, to_receive)
        finally:
            os.kill(process, signal.SIGTERM)
            os.close(to_send)
            os.waitpid(process, 0)
