"""Control events under many writers, crashes and half files. No Spark is started here."""

from __future__ import annotations

import errno
import itertools
import json
import multiprocessing
import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.spark.kills import killed_at

import plait
import plait.spark
from plait.core.sources import Holding
from plait.spark.cell import arrive
from plait.spark.cell.arrive import StreamProgress
from plait.spark.formats import Event, Sources
from plait.spark.keep import control


def read(folder: Path) -> list[dict[str, Any]]:
    """All events, which must be whole and numbered without gaps."""
    files = sorted(folder.glob("*.json"))
    found = [json.loads(file.read_text()) for file in files]
    assert [event["no"] for event in found] == [int(file.stem) for file in files] == list(range(len(files)))
    return found


def no_links(*_: Any) -> None:
    raise OSError(errno.EPERM, "no links here")


def write_some(folder: str, who: int, events: int) -> None:
    for k in range(events):
        plait.spark.heartbeat(folder, "a", ts=who * 1_000_000 + k, source=who)


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_many_writers_at_once_lose_and_double_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Processes and threads of this one; readers meanwhile see whole events only, and no gaps."""
    if not links:
        monkeypatch.setattr(os, "link", no_links)  # forked processes have it too
    folder = tmp_path / "control"
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=write_some, args=(str(folder), who, 30)) for who in range(3)]
    for process in processes:
        process.start()
    threads = [threading.Thread(target=write_some, args=(str(folder), who, 30)) for who in range(3, 6)]
    for thread in threads:
        thread.start()
    while any(each.is_alive() for each in (*processes, *threads)):
        assert all(json.loads(file.read_text())["do"] for file in folder.glob("*.json"))
    for each in (*processes, *threads):
        each.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    got = Counter((event["source"], event["ts"]) for event in read(folder))
    assert got == Counter((who, who * 1_000_000 + k) for who in range(6) for k in range(30))
    assert not list(folder.glob(".event*")), "temporary files are left"


def test_writers_that_are_killed_leave_whole_events(tmp_path: Path) -> None:
    """Whenever it happens: what is there is whole, and the next writer and start go on behind it."""
    chance, folder = random.Random(3), tmp_path / "control"
    fork = multiprocessing.get_context("fork")
    steady = fork.Process(target=write_some, args=(str(folder), 1, 1_000_000))
    steady.start()
    before = 0
    for _ in range(8):
        while len(list(folder.glob("*.json"))) <= before:
            assert steady.is_alive()
        for _ in range(chance.randrange(200)):
            os.sched_yield()
        writer = fork.Process(target=write_some, args=(str(folder), 2, 1_000_000))
        writer.start()
        writer.join(chance.random() / 50)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        before = len(list(folder.glob("*.json")))
    steady.kill()
    steady.join()
    read(folder)
    number = plait.spark.drain(folder)
    assert number == len(read(folder)) - 1
    control.announce(folder, {"a": Sources(None, "integers")})


@pytest.mark.parametrize("links", [True, False], ids=["links", "no links"])
def test_a_kill_at_any_step_of_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """An event is there, whole, or it is not; the next one has a number, and a start reads them all."""
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    for step in itertools.count():
        folder = tmp_path / str(step)
        plait.spark.heartbeat(folder, "a", ts=0)
        died = killed_at(step, folder, lambda folder=folder: plait.spark.heartbeat(folder, "a", ts=1))  # type: ignore[misc]
        plait.spark.heartbeat(folder, "a", ts=2)
        files = sorted(folder.glob("*.json"))
        told = [json.loads(file.read_text()) for file in files]
        assert [event["no"] for event in told] == [int(file.stem) for file in files]
        assert [event["ts"] for event in told] in ([0, 2], [0, 1, 2])
        control.announce(folder, {"a": Sources([0], "integers")})
        if not died:
            break
    assert step > 3


@pytest.mark.parametrize("torn", ["", "{", '{"no": 1, "do": "hea', "[1]", "\x00\x00", "7", '{"no": 1}', "null"])
def test_a_torn_file_stops_nothing(tmp_path: Path, torn: str) -> None:
    plait.spark.heartbeat(tmp_path, "a", ts=1)
    (tmp_path / "000000000001.json").write_text(torn)
    (tmp_path / "notes.json").write_text("none of ours")
    with pytest.warns(UserWarning, match="000000000001.json' is no whole control event"):
        control.announce(tmp_path, {"a": Sources([0], "integers")})
    assert plait.spark.drain(tmp_path) == 2
    assert Event.read(torn) is None


def test_an_event_that_is_seen_after_a_later_one_counts() -> None:
    """A listing of a growing folder may miss number 0 and have number 1."""
    stream = plait.stream("a", unit="us", source="s", sources=[0, 1])
    progress = {"a": StreamProgress(stream, (0, 1), open_ended=False)}
    known = arrive.Known(progress, {}, 0, False, -1)
    events = [Event(0, "heartbeat", "a", 0, 5), Event(1, "end", "a", 1)]
    for event in reversed(events):
        arrive._hear(known, arrive._Bodies(events=[event]), {})
    assert progress["a"].holding() == [Holding(5, ("a", 0))]
    assert known.events == 1
    arrive._hear(known, arrive._Bodies(events=events), {})  # again: nothing changes
    assert progress["a"].holding() == [Holding(5, ("a", 0))]


def test_numbers_are_taken_for_what_they_are_worth(tmp_path: Path) -> None:
    plait.spark.heartbeat(tmp_path, "a", ts=np.int64(7), source=np.int32(1))  # type: ignore[arg-type]
    assert json.loads((tmp_path / "000000000000.json").read_text())["ts"] == 7
    for ts in (1.5, "7", True, 2**62 + 1, -(2**62) - 1, None):
        with pytest.raises(plait.QueryError, match="ts"):
            plait.spark.heartbeat(tmp_path, "a", ts=ts)  # type: ignore[arg-type]
    assert len(read(tmp_path)) == 1


@pytest.mark.parametrize("folder", ["s3a://bucket/control", "hdfs:/control", Path("s3a://bucket/control")], ids=str)
def test_stores_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for write in (plait.spark.drain, lambda f: plait.spark.end(f, "a"), lambda f: plait.spark.heartbeat(f, "a", ts=1)):
        with pytest.raises(plait.DataError, match=r"The folder of control events .* names a store"):
            write(folder)
    assert list(tmp_path.iterdir()) == []
    plait.spark.drain(f"file://{tmp_path}/con%20trol")
    assert len(read(tmp_path / "con trol")) == 1


def test_a_disk_that_is_full_writes_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(plait.DataError, match=r"'drain' can't be written to .*No space left.* No event was written"):
        plait.spark.drain(tmp_path)
    assert list(tmp_path.iterdir()) == []
