"""What this machine takes for each step that the papers' models name: the record, and where it is kept.

`plait calibrate` measures it (`cli.measuring`) and keeps it in the user's cache folder, a file for each machine, since a home
folder may be shared by several. `auto` asks `kept()`, and chooses by the models of `plait.models` where there is one.

The rule: a calibration makes a run quicker or does nothing. A file that is damaged, of another version or of another machine
counts for none, and nothing fails because it can't be read. What it decides never changes a result.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import platform
import tempfile
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from plait.core.machine.folder import cache_folder
from plait.errors import RunError

#: Of the file. Another number is another set of figures, or another meaning of one: such a file is measured anew.
VERSION: Final = 1

#: Names another file, or, if it is empty, none: for tests, and for runs that must not depend on what was measured.
VARIABLE: Final = "PLAIT_CALIBRATION"


def _cost(words: str, symbol: str) -> Any:
    return field(metadata={"words": words, "symbol": symbol})


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds, each for one tuple, pair, result or hop as its words say. `symbols` tells the papers' names of them."""

    comparison_s: float = _cost("comparing one pair in a scan", "T_P, Ton, 1 / C_max")
    see_s: float = _cost(
        "a worker takes a tuple and stores it, before any comparison", "d^P, the part that is not shared out"
    )
    push_s: float = _cost("pushing a tuple of a join", "d^I")
    emit_s: float = _cost("a worker writes a result down", "d^P, for each result")
    result_s: float = _cost("merging a result and making a row of it", "d^O, T_Col")
    result_merge_s: float = _cost("what n workers add to that, times n log2 n", "d^M of V_SN")
    hop_s: float = _cost("waking another thread", "T_CL")
    ring_add_s: float = _cost("adding a tuple to the ring, 2 sources", "Add")
    ring_add_level_s: float = _cost("what each doubling of sources adds to that", "S-Merge at the source")
    ring_get_s: float = _cost("getting a tuple from the ring, 2 sources", "S-Merge at the reader")
    ring_get_level_s: float = _cost("what each doubling of sources adds to that", "S-Merge at the reader")
    ring_contend_s: float = _cost("what each further reader adds to adding", "d^C of V_SN")
    skiplist_add_s: float = _cost("adding a tuple to the skip list, 2 sources", "Add and S-Merge at the source")
    skiplist_add_level_s: float = _cost("what each doubling of sources adds to that", "S-Merge at the source")
    skiplist_get_s: float = _cost("getting a tuple from the skip list, 2 sources", "getNextReadyTuple")
    skiplist_get_level_s: float = _cost("what each doubling of sources adds to that", "getNextReadyTuple")
    skiplist_contend_s: float = _cost("what each further reader adds to adding", "d^C of V_SN")
    tuml_input_s: float = _cost("pushing a tuple of an aggregate with TuML", "I_t: Add")
    tuml_input_source_s: float = _cost("what each source adds to that", "I_t: Add")
    tuml_output_s: float = _cost(
        "merging it, updating windows, giving results out, with TuML", "O_t: S-Merge, Update, Output"
    )
    tuml_output_source_s: float = _cost("what each source adds to that", "O_t: S-Merge, Update, Output")
    wiml_input_s: float = _cost("pushing a tuple and updating its windows with WiML", "I_t: Add, Update")
    wiml_input_source_s: float = _cost("what each source adds to that", "I_t: Add, Update")
    wiml_output_s: float = _cost("putting parts of windows together and giving results out, with WiML", "O_t: Output")
    wiml_output_source_s: float = _cost("what each source adds to that", "O_t: Output")

    def __post_init__(self) -> None:
        for each in fields(self):
            value = vars(self)[each.name]
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise ValueError(f"{each.name}={value!r} is no cost")
        for name in ("comparison_s", "see_s", "push_s", "result_s", "tuml_output_s", "wiml_output_s"):
            if vars(self)[name] == 0:
                raise ValueError(f"{name} is zero, and nothing is free")

    @property
    def c_max(self) -> float:
        """ScaleJoin's C_max: comparisons a second of one worker."""
        return 1 / self.comparison_s

    def described(self) -> list[tuple[str, str, float]]:
        """Every figure: its words, the papers' symbol, seconds."""
        return [(each.metadata["words"], each.metadata["symbol"], vars(self)[each.name]) for each in fields(self)]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Costs, on which machine, and when they were measured (UTC)."""

    costs: Costs
    machine: str
    measured: str

    @property
    def told(self) -> str:
        """In messages: when it was measured."""
        return f"calibrated {self.measured[:10]}"


def duration(seconds: float) -> str:
    """A time for a person, with the unit that fits it.

    >>> duration(0.00000000213), duration(0.0000062), duration(0)
    ('2.13 ns', '6.2 us', '0 ns')
    """
    if seconds == 0:
        return "0 ns"
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        if seconds * scale < 999.5:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds:.3g} s"


@functools.cache
def this_machine() -> str:
    """This machine in words: its name, its processor and how many cores there are. Another one has other costs."""
    model = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    return f"{platform.node()}, {model or platform.machine()}, {os.cpu_count() or 1} cores"


def place() -> Path | None:
    """This machine's file; None where `PLAIT_CALIBRATION` says that there is none."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given) if given else None
    digest = hashlib.sha256(this_machine().encode()).hexdigest()[:12]
    return cache_folder() / f"calibration-{digest}.json"


def kept() -> Calibration | None:
    """What was measured on this machine, or None: not measured, damaged, of another version, of another machine.

    A file is read once in a process, so that all that is planned there goes by the same figures.
    """
    path = place()
    return None if path is None else _read(path)


@functools.cache
def _read(path: Path) -> Calibration | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["version"] != VERSION or found["machine"] != this_machine():
            return None
        return Calibration(costs=Costs(**found["costs"]), machine=found["machine"], measured=str(found["measured"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def forget() -> None:
    """Delete what is kept, if anything is."""
    path = place()
    if path is not None:
        path.unlink(missing_ok=True)
        _read.cache_clear()


def keep(calibration: Calibration) -> Path:
    """Write it in place of what was there: whole or not at all. Gives the file."""
    path = place()
    if path is None:
        raise RunError(
            f"{VARIABLE} is empty",
            why="that says that no calibration is kept",
            do=f"Unset {VARIABLE}, or name a file in it",
        )
    text = json.dumps({"version": VERSION, **asdict(calibration)}, indent=1)
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".calibration.", suffix=".tmp")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
        _read.cache_clear()
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise RunError(
            f"The calibration can't be written to {path}: {error}",
            do=f"Name a folder you can write to in PLAIT_CACHE_DIR, or a file in {VARIABLE}",
        ) from error
    return path
