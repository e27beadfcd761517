"""The report of the papers' figures: nothing is left out, what is written down can be read again, what fails is told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import plait_bench.papers as report
from plait.cli.main import cli
from plait.errors import QueryError
from plait_bench.papers.page import page
from plait_bench.papers.study import PAPERS, Claim, Found, Line, Outcome, Panel, Scale, Study, rising, slope

#: The figures and tables of the papers' evaluations, and of STRETCH's model.
EVALUATED = {
    "scalejoin": {f"figure {n}" for n in range(5, 9)},
    "splitjoin": {f"figure {n}" for n in (12, 13, 15, 16, 17, 18, 19)},
    "dpjoin": {"figure 6", "figure 7", "table 1", "figure 8", "figure 9"},
    "stretch": {"figure 3", "figure 4", "figure 5", "table 2"},
    "aggregation": {"table 2", *(f"figure {n}" for n in range(7, 35))},
}


def test_every_figure_and_table_of_the_evaluations_has_a_study() -> None:
    for paper in PAPERS:
        own = [study.label for study in report.studies() if study.paper == paper]
        labels = {" ".join(label.split()[:2]).rstrip("abc") for label in own}  # figure 7a, figure 5 intra-epoch
        assert EVALUATED[paper] - labels == set(), paper


def test_names_are_those_that_only_takes() -> None:
    names = [study.name for study in report.studies()]
    assert len(names) == len(set(names))
    assert {"scalejoin-5", "stretch-table-2", "aggregation-34"} <= set(names)
    assert all(study.published and study.title for study in report.studies())


def claim(holds: bool, **options: Any) -> Claim:
    return Claim("it grows", holds, "1, 2, 3", **options)


def test_verdicts() -> None:
    two, quick = Scale("usual", cores=2), Scale("quick", cores=2)
    assert claim(True).verdict(two) == claim(True, cores=2).verdict(two) == claim(True).verdict(quick) == "holds"
    assert claim(False).verdict(two) == "fails"
    for holds in (True, False):
        assert claim(holds, cores=3).verdict(two) == claim(holds, quick=False).verdict(quick) == "not judged"
    assert claim(False, quick=False).verdict(two) == "fails"
    assert claim(False, instead="a reason").verdict(two) == "explained"


def found(*claims: Claim) -> Found:
    lines = [Line("ours", [1, 2, 4], [1.0, 2.0, 3.5]), Line("theirs", [1, 2], [1.0, 1.9], published=True)]
    bars = Panel("strategy", "t/s", [Line("a", ["x", "y"], [1.0, 2.0])], bars=True)
    return Found(
        "It grows by 2 & more.",
        [{"n": 1, "rate": 2.0}],
        claims,
        [Panel("threads", "rate", lines, "all", True, True), bars],
    )


def study(answers: list[bool], asked: list[Scale]) -> Study:
    def measure(scale: Scale) -> Found:
        asked.append(scale)
        return found(claim(answers[len(asked) - 1]))

    return Study("scalejoin", "figure 99", "A <figure>", measure, "They had 3.")


def test_a_shape_is_looked_for_again_before_it_is_said_to_fail() -> None:
    for answers, tries, failed in (([True], 1, 0), ([False, True], 2, 0), ([False] * 3, 3, 1)):
        asked: list[Scale] = []
        outcome = report.measured(study(answers, asked), Scale("quick", cores=2))
        assert (outcome.tries, len(outcome.failed)) == (tries, failed)
        assert [scale.attempt for scale in asked] == list(range(tries)), "another key for what is cached"


def test_what_is_written_down_can_be_read_again() -> None:
    outcome = report.measured(study([True], []), Scale("quick", cores=2))
    again = Outcome.from_json(json.loads(json.dumps(outcome.as_json())))
    assert json.dumps(again.as_json()) == json.dumps(outcome.as_json())
    assert page([again]) == page([outcome])


def test_the_page_stands_alone() -> None:
    text = page([report.measured(study([False] * 3, []), Scale("usual", cores=2))])
    for part in (
        "It grows by 2 &amp; more.",
        "A &lt;figure&gt;",
        "does not hold",
        "They had 3.",
        "--only scalejoin-99",
        "<svg",
    ):
        assert part in text
    assert "<script" not in text
    assert not [url for url in re.findall(r"https?://[^\s\"'<]+", text) if "w3.org" not in url and "purl.org" not in url
                and "creativecommons" not in url and "matplotlib" not in url], "it loads something"  # fmt: skip
    assert not re.search(r"(?:src|@import|url\()\s*=?\s*[\"']?https?:", text)


def test_a_report_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Scale] = []
    monkeypatch.setattr(report, "studies", lambda: [study([True] * 9, asked)])
    out = tmp_path / "papers.html"
    assert report.run(quick=True, out=out)["failed"] == 0
    assert out.exists()
    assert out.with_suffix(".jsonl").read_text().count("\n") == 1
    report.run(quick=True, out=out, resume=True)
    assert len(asked) == 1, "it was measured again"
    report.run(quick=True, out=out)
    assert len(asked) == 2


def test_a_shape_that_fails_ends_the_command_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for answers, code in (([False] * 3, 1), ([True], 0)):
        monkeypatch.setattr(report, "studies", lambda answers=answers: [study(answers, [])])
        done = CliRunner().invoke(cli, ["bench", "papers", "--quick", "--json", "--out", str(tmp_path / "p.html")])
        assert done.exit_code == code


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(QueryError, match="There is no study 'scalejoin-99' in the report"):
        report.run(quick=True, only=["scalejoin-99"])
    done = CliRunner().invoke(cli, ["bench", "gate", "--only", "x"])
    assert done.exit_code != 0
    assert isinstance(done.exception, QueryError) or "--only with 'gate'" in done.output


def test_shapes() -> None:
    assert rising([1, 2, 3])
    assert rising([1, 0.95, 2], tolerance=0.1)
    assert not rising([1, 0.8, 2], tolerance=0.1)
    assert slope([1, 2, 4], [3, 6, 12]) == pytest.approx(1)
    assert slope([1, 4, 16], [1, 2, 4]) == pytest.approx(0.5)
