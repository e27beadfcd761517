"""What a user can name: the packages' `__all__`, what their functions give back, and the options of runs."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plait.connectors import folder, memory
from plait.core import policy
from plait.query import functions, run_options
from plait.query.condition import choice, text_calls, textual, trace
from plait.threads import readers, run, stats
from plait.threads.elastic import manager
from plait.watch import serving

#: Packages whose `__all__` is a promise to users.
PACKAGES = (
    "plait", "plait.query", "plait.connectors", "plait.connectors.synthetic", "plait.spark",
    "plait.models.scalejoin", "plait.models.splitjoin", "plait.models.dpjoin", "plait.models.stretch", "plait.models.aggregation",
)  # fmt: skip

#: What users get or name without importing it from one of these.
BESIDE = (
    functions.Function, textual.OfText, trace.Symbol, text_calls.TextCalls, choice.When,
    run.Run, readers.Reader, run_options.ThreadsOptions,
    run_options.SparkOptions, memory.feed, folder.feed, stats.Stats,
    stats.WorkerStats, stats.Quantiles, manager.Change, policy.Load, policy.Thresholds, serving.Page,
)  # fmt: skip


@dataclass(frozen=True)
class Public:
    """Something public, by its full name. `owner` is the class that it is a method of."""

    name: str
    object: Any
    owner: type | None = None

    @property
    def text(self) -> str:
        return inspect.getdoc(self.object) or ""

    @property
    def is_class(self) -> bool:
        return inspect.isclass(self.object)

    @property
    def needs_spark(self) -> bool:
        """Its example starts a session, or reads from one."""
        return "spark.session" in self.text.partition("Example:")[2]


def everything() -> list[Public]:
    """Functions, classes, and methods and properties of these; each once, under the first of its names."""
    found: dict[int, Public] = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if (inspect.isclass(thing) or inspect.isfunction(thing)) and thing.__module__.startswith("plait"):
                found.setdefault(id(thing), Public(f"{package}.{name}", thing))
    for thing in BESIDE:
        found.setdefault(id(thing), Public(f"{thing.__module__}.{thing.__name__}", thing))
    return [each for public in found.values() for each in (public, *_members(public))]


def constants() -> list[tuple[str, str]]:
    """Names in `__all__` that are neither functions nor classes, with their package."""
    found = []
    for package in PACKAGES:
        module = importlib.import_module(package)
        known = [name for name in module.__all__ if not callable(getattr(module, name))]
        found += [(package, name) for name in known]
    return found


def _members(public: Public) -> Iterator[Public]:
    if not public.is_class:
        return
    for name, member in vars(public.object).items():
        if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, (property, classmethod))):
            yield Public(f"{public.name}.{name}", member, public.object)
