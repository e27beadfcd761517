"""Which engine runs a job, and running it: into a sink that holds either everything or nothing, or into memory."""

from __future__ import annotations

import pyarrow as pa

from plait.cli.engine import Engine
from plait.cli.job import Job
from plait.cli.progress import Display, Show
from plait.cli.reference_engine import ReferenceEngine
from plait.cli.spark_engine import SparkEngine
from plait.cli.threads_engine import ThreadsEngine
from plait.connectors import sinks
from plait.core.metrics import Metrics
from plait.errors import RunError
from plait.query.base import Query, has_executor

#: By name, the best one first.
ENGINES: dict[str, Engine] = {engine.name: engine for engine in (SparkEngine(), ThreadsEngine(), ReferenceEngine())}


def available(query: Query | None = None) -> list[str]:
    """The executors that are here (and run this query), the best one first."""
    here = [engine for engine in ENGINES.values() if has_executor(engine.name) and engine.missing() is None]
    return [engine.name for engine in here if query is None or engine.refuses(query) is None]


def choose(wanted: str | None, query: Query) -> str:
    """The engine that was asked for, or the best there is.

    Raises:
        RunError: It is not here, or does not run this query; the message says which do.
    """
    here = available(query)
    if wanted is None:
        return here[0]
    if wanted not in here:
        engine = ENGINES.get(wanted)
        why = None if engine is None else engine.missing() or engine.refuses(query)
        raise RunError(
            f"There is no engine {wanted!r} for this query here", why=why or "", do=f"Use one of: {', '.join(here)}"
        )
    return wanted


def run(
    job: Job, engine: str, *, output: str, late: str | None, quiet: bool = False, show: Show | None = None
) -> Metrics:
    """Run into files. Nothing stands under the final names unless the run came to its end.

    Args:
        job: What to run.
        engine: The executor's name, as `choose` gives it.
        output: Where results go; `-` is standard output.
        late: Where late rows go, or None.
        quiet: Show no progress.
        show: What is shown besides, instead.

    Returns:
        What the run told of itself.
    """
    for target in (output, late):
        if target is not None:
            sinks.check_path(target)
    return ENGINES[engine].run(job, output, late, show or Show(quiet))


def collect(engine: str, job: Job, display: Display) -> pa.Table:
    """The whole result, in memory, with its keys."""
    return ENGINES[engine].collect(job, display)
