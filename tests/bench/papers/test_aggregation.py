"""The aggregation paper's studies: every claim holds of rows that have its shape and fails of rows that lack it; they run, small.

Rows are made up. `rows_of` gives a query's rows by inputs as the paper would have them; a test spoils what it is about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from plait_bench import aggregate_queries as paper
from plait_bench.papers.aggregation import STUDIES, features, inputs, queries, rates, stages, sweeps, threads
from plait_bench.papers.aggregation import gate as figure
from plait_bench.papers.aggregation.sweeps import MQ, MQ_LF, RING, T_GATE, WIML
from plait_bench.papers.study import Found, Row, Scale

Spoil = Callable[[dict[str, Any]], Any]
#: Processor time in and out, rate and latency with 5 and with 20 inputs, as the paper has it: MQ's output grows.
SHAPES = {
    MQ: ((50, 100, 3e6, 10), (50, 300, 1e6, 60)), MQ_LF: ((50, 90, 3e6, 9), (50, 250, 2e6, 50)),
    T_GATE: ((90, 80, 4e6, 8), (120, 80, 4e6, 9)), RING: ((50, 90, 4e6, 8), (50, 110, 4e6, 9)),
    WIML: ((200, 60, 4e6, 5), (200, 40, 9e6, 5)),
}  # fmt: skip


def rows_of(name: str, spoil: Spoil = lambda row: None, dearer: float = 1.0) -> list[dict[str, Any]]:
    found = []
    for design in sweeps.designs(name):
        for number, (into, out, rate, ms) in zip((5, 20), SHAPES[design], strict=True):
            row = {
                "query": name, "design": design, "inputs": number, "input_ns": into * dearer, "output_ns": out * dearer,
                "tuples_per_s": rate / dearer, "push_p50_ms": ms * dearer,
            }  # fmt: skip
            spoil(row)
            found.append(row)
    return found


def spoiled(design: str, number: int, **values: float) -> Spoil:
    return lambda row: row.update(values) if (row["design"], row["inputs"]) == (design, number) else None


def judged(found: Found) -> dict[str, bool]:
    return {claim.says: claim.holds for claim in found.claims}


def fails(found: Found, words: str) -> None:
    """One claim, which has these words, does not hold; its numbers are told."""
    (claim,) = [claim for claim in found.claims if words in claim.says]
    assert not claim.holds
    assert claim.shown


def holds(found: Found) -> None:
    assert all(judged(found).values()), judged(found)
    assert found.sentence.endswith(".")


# --- figure 7 ---


def sorted_rows(**changed: float) -> list[Row]:
    values = {"fast_5": 10e6, "fast_20": 12e6, "slow_5": 3e6, "slow_20": 2e6, "fast_ms": 1.0, "slow_ms": 1.6} | changed
    return [
        {"sources": n, "contender": who, "tuples_per_s": values[f"{speed}_{n}"], "mean_ms": values[f"{speed}_ms"]}
        for n in (5, 20)
        for who, speed in ((figure.T_GATE, "fast"), (figure.PLAIN, "slow"))
    ]


def test_figure_7():
    holds(figure.shown(sorted_rows()))
    fails(figure.shown(sorted_rows(fast_20=2e6)), "sorts more tuples")
    fails(figure.shown(sorted_rows(slow_20=4e6)), "the skip list gets slower")
    fails(figure.shown(sorted_rows(fast_20=9e6)), "T-Gate gets faster")
    fails(figure.shown(sorted_rows(fast_ms=2.0)), "latency is lower")


# --- figures 8 to 12 ---


def test_figures_8_and_10():
    sensitive, insensitive = rows_of("K-OS"), rows_of("K-OI")
    holds(stages.order_sensitive(sensitive))
    holds(stages.order_insensitive(insensitive, sensitive))
    for words, spoil in {
        "lock-free queues": spoiled(MQ_LF, 20, output_ns=400.0),
        "output thread works shorter": spoiled(T_GATE, 20, output_ns=500.0),
        "input threads work longer": spoiled(T_GATE, 20, input_ns=40.0),
    }.items():
        fails(stages.order_sensitive(rows_of("K-OS", spoil)), words)
    for words, spoil in {
        "input threads work longer": spoiled(WIML, 20, input_ns=40.0),
        "gain more work": spoiled(WIML, 20, input_ns=60.0),
        "output thread works shorter": spoiled(WIML, 20, output_ns=400.0),
    }.items():
        fails(stages.order_insensitive(rows_of("K-OI", spoil), sensitive), words)


def injected(best: str, **changed: float) -> list[Row]:
    """Latency falls, then explodes; at `low` and `middle` all sustain."""
    own = {"low": 10.0, "middle": 5.0, "high": 100.0, "other": 12.0} | changed
    return [
        {
            "design": design, "rate": rate, "late_p50_ms": 0.0,
            "push_p50_ms": own[at] if design == best or at == "high" else own[at] * own["other"] / 10,
            "sustained": at != "high", "highest_rate": 3e5,
        }
        for design in (MQ, MQ_LF, best)
        for at, rate in (("low", 1e4), ("middle", 1e5), ("high", 1e6))
    ]  # fmt: skip


def test_figures_9_and_11():
    for best in (T_GATE, WIML):
        holds(rates.by_injected(injected(best), best))
        fails(rates.by_injected(injected(best, high=6.0), best), "latency explodes")
        fails(rates.by_injected(injected(best, middle=10.0), best), "latency falls at first")
    fails(rates.by_injected(injected(WIML, other=2.0), WIML), "not above the multi-queues")


def test_what_a_push_waited_for_its_turn_is_latency():
    waited = [{**row, "push_p50_ms": 5.0, "late_p50_ms": row["push_p50_ms"]} for row in injected(WIML)]
    holds(rates.by_injected(waited, WIML))


def test_figure_12():
    sensitive, insensitive = rows_of("K-OS"), rows_of("K-OI")
    holds(rates.improvements(sensitive, insensitive))
    fails(rates.improvements(rows_of("K-OS", spoiled(T_GATE, 20, output_ns=300.0)), insensitive), "K-OS: TuML-SC")
    fails(rates.improvements(rows_of("K-OS", spoiled(T_GATE, 20, push_p50_ms=70.0)), insensitive), "K-OS: its latency")
    fails(rates.improvements(sensitive, rows_of("K-OI", spoiled(WIML, 20, output_ns=300.0))), "K-OI: WiML")
    fails(rates.improvements(sensitive, rows_of("K-OI", spoiled(WIML, 20, push_p50_ms=70.0))), "K-OI: its latency")


# --- figures 13 to 27 ---


@pytest.mark.parametrize("name", paper.QUERIES)
def test_a_query_by_inputs(name):
    best = sweeps.improved(name)[0]
    holds(inputs.shown(name, rows_of(name)))

    def flat(row: dict[str, Any]) -> None:
        if row["design"] in (MQ, MQ_LF):
            row["output_ns"] = 100.0

    fails(inputs.shown(name, rows_of(name, flat)), "multi-queues let through falls")
    fails(inputs.shown(name, rows_of(name, spoiled(best, 20, output_ns=300.0))), "threads let more through")
    fails(inputs.shown(name, rows_of(name, spoiled(best, 20, tuples_per_s=0.9e6))), "higher throughput")
    fails(inputs.shown(name, rows_of(name, spoiled(best, 20, push_p50_ms=61.0))), "lower latency")
    if best == WIML:
        fails(
            inputs.shown(name, rows_of(name, spoiled(WIML, 20, output_ns=90.0))), "what WiML lets through does not fall"
        )
        fails(inputs.shown(name, rows_of(name, spoiled(WIML, 20, tuples_per_s=3e6))), "WiML's throughput grows")
    else:
        fails(inputs.shown(name, rows_of(name, spoiled(T_GATE, 20, output_ns=160.0))), "rather stable")


def test_only_dear_functions_have_an_excuse():
    """Where who pushes computes it, and nowhere else: any other query's claims fail as they stand."""
    for name in paper.QUERIES:
        excused = [claim.says for claim in inputs.shown(name, rows_of(name)).claims if claim.instead]
        assert len(excused) == (4 if name[0] in "fF" else 0)


def group(names: Iterable[str], dearer: float, **spoil: Spoil) -> dict[str, list[dict[str, Any]]]:
    return {
        name: rows_of(name, spoil.get(name.replace("-", "_"), lambda row: None), dearer if name[0].isupper() else 1.0)
        for name in names
    }


def test_figures_17_22_and_27():
    for shown, names in (
        (features.keys, features.KEYS),
        (features.windows, features.WINDOWS),
        (features.cost, features.COST),
    ):
        others = () if "k-OS" in names else ("k-OS",)
        last = names[-1].replace("-", "_")
        # TuML's gain is smaller on F-OS than on k-OS, as the paper has it.
        close = {"F_OS": spoiled(T_GATE, 20, output_ns=400.0)} if shown is features.cost else {}
        holds(shown(group((*names, *others), 2.0, **close)))
        cheaper = shown(group((*names, *others), 0.9))
        assert [claim.holds for claim in cheaper.claims if re.search("costs? throughput", claim.says)] == [False]
        worse: dict[str, Spoil] = {last: spoiled(WIML, 20, output_ns=1_000.0)}
        fails(shown(group((*names, *others), 2.0, **close, **worse)), "on all four")


def test_figure_27_has_two_claims_more():
    names = (*features.COST, "k-OS")
    fails(features.cost(group(names, 2.0, F_OS=spoiled(T_GATE, 20, output_ns=50.0))), "improves less")
    fails(features.cost(group(names, 2.0, F_OI=spoiled(WIML, 20, output_ns=300.0, input_ns=300.0))), "about the same")


def test_twice_the_windows_are_explained():
    claim = features.windows(group(features.WINDOWS, 1.0)).claims[-1]
    assert claim.verdict(Scale("usual", cores=2)) == "explained"
    assert "pane" in claim.instead


# --- figures 28 to 34 ---


def by_threads(name: str, busy: tuple[float, float], rate: tuple[float, float] = (1e6, 3e6)) -> list[Row]:
    return [
        {
            "query": name, "gate": gate, "inputs": n, "threads": count, "updater_ns": busy[at], "tuples_per_s": rate[at],
            "push_p50_ms": 5.0,
        }
        for gate in ("skiplist", "ring")
        for n in (5, 20)
        for at, count in enumerate((1, 4))
    ]  # fmt: skip


@pytest.mark.parametrize("name", sweeps.SIX)
def test_a_query_by_update_threads(name):
    holds(threads.shown(name, by_threads(name, (100, 40))))
    fails(threads.shown(name, by_threads(name, (100, 160))), "gets more to do")
    fails(threads.shown(name, by_threads(name, (100, 40), (3e6, 2.5e6))), "throughput grows")
    fails(threads.shown(name, by_threads(name, (100, 40), (3e6, 2e6))), "does not degrade")
    if name[0] in "KfF":
        fails(threads.shown(name, by_threads(name, (100, 95))), "share the work")


def six(**changed: list[Row]) -> dict[str, list[Row]]:
    busy = {"k-OS": 60.0}
    return {
        name: changed.get(name.replace("-", "_"), by_threads(name, (100, busy.get(name, 40.0)))) for name in sweeps.SIX
    }


def test_figure_34():
    holds(threads.scaling(six()))
    fails(threads.scaling(six(K_OS=by_threads("K-OS", (100, 70)))), "K-OS scales better")
    fails(threads.scaling(six(W_OS=by_threads("W-OS", (100, 90)))), "scale alike")
    fails(threads.scaling(six(F_OS=by_threads("F-OS", (100, 40), (2e6, 1e6)))), "on all six")


# --- table 2 ---


def table(**changed: Any) -> list[Row]:
    """The table as printed; the last query's row is spoiled."""
    rows = [
        {
            "query": f"{letter}-{kind}", "data": data, "size_s": size, "advance_s": advance, "windows": number, "designs": 5,
            "differ": 0, "results": 7,
        }
        for kind in ("OS", "OI")
        for letter, (data, size, advance, number) in queries.PRINTED.items()
    ]  # fmt: skip
    return [*rows[:-1], {**rows[-1], **changed}]


def test_table_2():
    holds(queries.shown(table()))
    fails(queries.shown(table(differ=1)), "to the byte")
    fails(queries.shown(table()[:-1]), "to the byte")
    fails(queries.shown(table(size_s=30)), "are the table's")
    fails(queries.shown(table(results=0)), "are the table's")


# --- all of them ---


def test_every_figure_and_table_of_the_evaluation_has_a_study():
    assert {study.label for study in STUDIES} == {"table 2", *(f"figure {number}" for number in range(7, 35))}
    assert all(study.published for study in STUDIES)


def test_figures_share_what_was_measured_last():
    made: list[Scale] = []

    @sweeps.shared
    def measured(scale: Scale, name: str) -> tuple[Row, ...]:
        made.append(scale)
        return ({"attempt": scale.attempt},)

    first, again = Scale("quick", cores=2), Scale("quick", cores=2, attempt=1)
    assert measured(first, "k-OS") == measured(first, "k-OS") == ({"attempt": 0},)
    assert measured(again, "k-OS") == measured(first, "k-OS") == ({"attempt": 1},)
    assert made == [first, again]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Scale:
    """A quick run of next to nothing: two queries, a few tuples a second, nothing warm."""
    monkeypatch.setattr(paper, "QUERIES", {name: paper.QUERIES[name] for name in ("k-OS", "K-OI")})
    monkeypatch.setattr(paper, "warm", lambda: None)
    monkeypatch.setattr(sweeps, "PER_SECOND", dict.fromkeys(sweeps.PER_SECOND, (8, 8, 8)))
    monkeypatch.setattr(sweeps, "RATED", (4, 4, 4))
    monkeypatch.setattr(sweeps, "SPAN_S", (0.01, 0.01, 0.01))
    monkeypatch.setattr(figure, "TUPLES", (4_000,) * 3)
    monkeypatch.setattr(figure, "SECONDS", (0.002,) * 3)
    monkeypatch.setattr(queries, "TUPLES", (300, 300))
    return Scale("quick", cores=2, attempt=7)


@pytest.mark.parametrize("label", ["table 2", "figure 7", "figure 11", "figure 13", "figure 28"])
def test_a_study_of_every_kind_runs(label, tiny):
    (study,) = [study for study in STUDIES if study.label == label]
    found = study.measure(tiny)
    assert found.rows
    assert found.claims
    assert found.panels or label.startswith("table")
