"""Structured logs: what happens to a run, as records of Python's `logging` whose fields say of which query and batch.

Logger `plait`. Records have `query`, and where it applies `batch`, `kind`, and the numbers of `FIELDS`, as attributes.
`JsonLines` writes each as one line of JSON, and `to_json_lines` has it do so on a stream. Nothing is logged that came in a row
but names of streams and sources, spelled such that they make no lines of their own.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from typing import IO, Any, Final

from plait.core.held import printable
from plait.core.metrics import Metrics, amount
from plait.order import TS_MAX, TS_MIN
from plait.watch.sampling import Look
from plait.watch.watched import Watched

LOGGER: Final = logging.getLogger("plait")
LOGGER.addHandler(logging.NullHandler())  # who wants records asks for them

#: Of a run's numbers those that a record has.
FIELDS: Final = ("rows", "results", "late", "behind", "frontier", "lag_us", "pending", "seconds")
_OWN: Final = frozenset(vars(logging.makeLogRecord({})))


class JsonLines(logging.Formatter):
    """A record as a line of JSON: time, level, message, and whatever fields it was given."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        found |= {name: value for name, value in vars(record).items() if name not in _OWN and name not in found}
        if record.exc_info and record.exc_info[0] is not None:
            found["error"] = record.exc_info[0].__name__  # its text may hold a value
        return json.dumps(found, default=str)


def to_json_lines(stream: IO[str], level: int = logging.INFO) -> logging.Handler:
    """Write plait's records to a stream, a line of JSON each. Gives the handler, for `LOGGER.removeHandler`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    LOGGER.addHandler(handler)
    LOGGER.setLevel(min(LOGGER.level or level, level))
    return handler


def fields(run: Metrics) -> dict[str, Any]:
    """What a record has of a run's numbers."""
    own = vars(run)
    found = {name: amount(own[name]) for name in FIELDS if own.get(name) is not None}
    return {name: value for name, value in found.items() if name != "frontier" or TS_MIN <= value <= TS_MAX}


def batch_done(query: str, number: int, run: Metrics) -> None:
    """A micro-batch is done."""
    if LOGGER.isEnabledFor(logging.INFO):
        LOGGER.info("batch done", extra={"query": printable(query), "batch": number, "kind": "batch", **fields(run)})


class Reasons:
    """Why results of one run wait, as it changes: a record each time that it is another reason than before."""

    def __init__(self, watched: Watched) -> None:
        self._watched, self._before = watched, ""

    def look(self, look: Look) -> None:
        """What a look has found."""
        found = self._watched.reason(look.run)
        level = logging.WARNING if found.kind in ("held", "failed") else logging.INFO
        if self._before == found.kind or not LOGGER.isEnabledFor(level):
            return
        self._before = found.kind
        told = {"query": printable(self._watched.title), "kind": found.kind, **fields(look.run)}
        LOGGER.log(level, found.words, extra=told)
