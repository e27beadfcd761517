"""What the command asks of an executor, whichever it is: `reference_engine`, `threads_engine` and `spark_engine` answer."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from plait.cli.job import Job
from plait.cli.progress import Display, Show
from plait.core.metrics import Metrics
from plait.query.base import Query


class Engine(Protocol):
    """An executor, for jobs whose rows come from feeds. To ask it anything does not import the executor itself.

    Engines have no state: one object of each serves all jobs (`execute.ENGINES`).
    """

    @property
    def name(self) -> str:
        """As `--engine` has it."""

    def missing(self) -> str | None:
        """Why it can't run here, if it is installed; None if it can."""

    def refuses(self, query: Query) -> str | None:
        """Why it does not run this query from feeds; None if it does."""

    def run(self, job: Job, output: str, late: str | None, show: Show) -> Metrics:
        """Run into files: they hold everything, or are not there."""

    def collect(self, job: Job, display: Display) -> pa.Table:
        """The whole result in memory, with its keys."""
