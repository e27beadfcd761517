"""`plait bench papers`: every figure and table of the five papers' evaluations, measured here, in one report.

The report is one HTML file that opens without a network: a picture a figure with the paper's points beside ours, a sentence of
what it shows, whether the shapes that the paper claims hold, the data, the machine, and the command that makes it again. What
a study is stands in `study`; each paper's studies stand in its own module, in its `STUDIES`. Every study is written down
when it is done (JSON, a line each), so that an interrupted report goes on with `resume=True`.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plait.errors import QueryError
from plait_bench.machine import machine
from plait_bench.papers.study import PAPERS, Outcome, Scale, Size, Study

FOLDER = Path("artifacts") / "papers"
TRIES = 3


def studies() -> list[Study]:
    """All of them, in the order of the papers and of their figures."""
    found: list[Study] = []
    for paper in PAPERS:
        found += importlib.import_module(f"plait_bench.papers.{paper}").STUDIES
    return found


def run(
    quick: bool = False, full: bool = False, *, only: Sequence[str] = (), out: str | Path | None = None,
    resume: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Measure the studies and write the report.

    Args:
        quick: A look: two minutes on two cores. Claims that need longer are not judged.
        full: More workers, for a machine with many cores.
        only: Names of studies (`"scalejoin-5"`) or of papers (`"stretch"`). Empty: all.
        out: The page's path; the data lie beside it, as `.jsonl`. None: `artifacts/papers/SIZE.html`.
        resume: Studies that the data file has already are not measured again.

    Returns:
        Rows, a study each: how long it took, its claims and what failed. `failed` counts the claims that do not hold.

    Raises:
        QueryError: No study has a name of `only`.
    """
    from plait_bench.papers.page import write

    size: Size = "quick" if quick else "full" if full else "usual"
    page = Path(out) if out is not None else FOLDER / f"{size}.html"
    data = page.with_suffix(".jsonl")
    page.parent.mkdir(parents=True, exist_ok=True)
    chosen = _chosen(only)
    done = _read(data) if resume else {}
    if not resume:
        data.write_text("")
    for at, study in enumerate(chosen, 1):
        if study.name in done:
            continue
        _say(f"[{at}/{len(chosen)}] {PAPERS[study.paper]}, {study.label}: {study.title}")
        outcome = measured(study, Scale(size))
        done[study.name] = outcome
        with data.open("a") as lines:
            lines.write(json.dumps(outcome.as_json(), default=_plain) + "\n")
        for failure in outcome.failed:
            _say(f"    does not hold: {failure}")
        _say(f"    {outcome.seconds:.1f} s")
    write(page, [done[study.name] for study in studies() if study.name in done])
    _say(f"The report: {page}")
    return _summary([done[study.name] for study in chosen])


def measured(study: Study, scale: Scale) -> Outcome:
    """A study's outcome; measured again, up to `TRIES` times in all, where a claim failed."""
    begin = time.perf_counter()
    for attempt in range(TRIES):
        now = replace(scale, attempt=attempt)
        found = study.measure(now)
        verdicts = [claim.verdict(now) for claim in found.claims]
        outcome = Outcome(
            study.name, study.paper, study.label, study.title, study.published, scale.size,
            time.perf_counter() - begin, attempt + 1, machine(), found, verdicts,
        )  # fmt: skip
        if "fails" not in verdicts:
            break
    return outcome


def _chosen(only: Sequence[str]) -> list[Study]:
    known = studies()
    names = {study.name for study in known} | set(PAPERS)
    unknown = [name for name in only if name not in names]
    if unknown:
        raise QueryError(
            f"There is no study {unknown[0]!r} in the report",
            do=f"Name a paper ({', '.join(PAPERS)}) or one of {', '.join(study.name for study in known)}",
        )
    return [study for study in known if not only or study.name in only or study.paper in only]


def _read(data: Path) -> dict[str, Outcome]:
    if not data.exists():
        return {}
    lines = [json.loads(line) for line in data.read_text().splitlines() if line]
    return {line["name"]: Outcome.from_json(line) for line in lines}


def _summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    rows = [
        {
            "study": each.name, "seconds": each.seconds, "tries": each.tries, "claims": len(each.verdicts),
            "hold": each.verdicts.count("holds"), "explained": each.verdicts.count("explained"),
            "not_judged": each.verdicts.count("not judged"), "failed": "; ".join(each.failed),
        }
        for each in outcomes
    ]  # fmt: skip
    failed = sum(len(each.failed) for each in outcomes)
    return {"bench": "papers", "machine": machine(), "rows": rows, "ratios": {}, "failed": failed}


def _plain(value: Any) -> Any:
    """NumPy's numbers as JSON's."""
    return value.item()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
