"""Every kind of fault, by the name that the command takes; groups of them; and the share of the short form."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tests.faults.record import Record

from plait import java

#: Rooms whose kinds start Spark.
SPARK: Final = ("on_spark", "spark_processes", "kafka")


@dataclass(frozen=True)
class Kind:
    """
    room    the module of this package that has it, imported when it is asked for: Spark's need Java
    short   how many faults of it `make faults` injects; 0: none
    """

    room: str
    short: int

    def inject(self, name: str, record: Record) -> None:
        if record.most == 0:
            return
        if self.room in SPARK and (reason := java.missing()):
            sys.stdout.write(f"{name}: not injected, {reason}\n")
            return
        function: Callable[[Record], None] = getattr(importlib.import_module(f"tests.faults.{self.room}"), name)
        function(record)


KINDS: Final[Mapping[str, Kind]] = {
    "state": Kind("cells", 200),
    "shared_memory": Kind("cells", 100),
    "attempts": Kind("cells", 100),
    "cards": Kind("files", 200),
    "notes": Kind("files", 200),
    "events": Kind("files", 200),
    "announced": Kind("files", 200),
    "parts": Kind("files", 300),
    "lying": Kind("threads", 80),
    "interrupts": Kind("threads", 60),
    "readers": Kind("threads", 20),
    "killed": Kind("processes", 12),
    "stopped": Kind("processes", 40),
    "disk_full": Kind("processes", 8),
    "tasks": Kind("on_spark", 10),
    "checkpoint_files": Kind("on_spark", 10),
    "copied_back": Kind("on_spark", 2),
    "drivers": Kind("spark_processes", 0),
    "stops": Kind("spark_processes", 0),
    "executors": Kind("spark_processes", 0),
    "clocks": Kind("spark_processes", 0),
    "disks_full": Kind("spark_processes", 0),
    "slow_disks": Kind("spark_processes", 0),
    "disk_errors": Kind("spark_processes", 0),
    "brokers": Kind("kafka", 0),
}

GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "cells": ("state", "shared_memory", "attempts"),
    "files": ("cards", "notes", "events", "announced", "parts"),
    "threads": ("lying", "interrupts", "readers", "killed", "stopped", "disk_full"),
    "spark": tuple(name for name, kind in KINDS.items() if kind.room in SPARK),
    "all": tuple(KINDS),
}
