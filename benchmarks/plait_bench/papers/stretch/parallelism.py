"""STRETCH's figures 3, 4a and 4b: virtual and pure shared-nothing parallelism, by the model and measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from plait.models import stretch as model
from plait_bench import elastic_operators as operators
from plait_bench.papers.stretch import synthetic_costs
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale

KINDS: tuple[model.Kind, ...] = ("virtual", "pure")


def figure_3(scale: Scale) -> Found:
    """The model with the costs of table 1: where either kind of parallelism stops scaling."""
    numbers = range(1, 17)
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        for threads in numbers:
            made = model.stages(kind, model.TABLE_1, threads)
            rows.append({
                "kind": kind, "threads": threads, "input": 1 / made.input_s, "processing": 1 / made.process_s,
                "output": 1 / made.output_s,
            })  # fmt: skip
    ends = {kind: model.scales_to(kind, model.TABLE_1) for kind in ("pure", "virtual")}
    panels = [
        Panel("processing threads", "rate, in units of one input thread's", [
            Line(stage, list(numbers), [row[stage] for row in rows if row["kind"] == kind])
            for stage in ("input", "processing", "output")
        ], title=kind)
        for kind in KINDS
    ]  # fmt: skip
    claim = Claim(
        "pure parallelism scales to 6 threads and virtual to 11", ends == {"pure": 6, "virtual": 11}, f"{ends}"
    )
    return Found(
        f"With table 1's costs pure shared-nothing stops scaling at {ends['pure']} threads, virtual at {ends['virtual']}.",
        rows, [claim], panels,
    )  # fmt: skip


# --- figure 4 -----------------------------------------------------------------------------------------------------


def costs_of(input_s: float) -> model.Costs:
    """Table 1's costs with this d^I."""
    unit = model.TABLE_1
    return model.Costs(
        input_s=input_s, process_s=unit.process_s * input_s, output_s=unit.output_s * input_s, route_s=unit.route_s * input_s,
        contend_s=unit.contend_s * input_s, merge_pure_s=unit.merge_pure_s * input_s,
        merge_virtual_s=unit.merge_virtual_s * input_s,
    )  # fmt: skip


def figure_4a(scale: Scale) -> Found:
    numbers = scale.pick((1, 6, 11), (1, 2, 4, 6, 8, 11, 16))
    costs, tuples = costs_of(scale.pick(0.7e-3, 2.8e-3)), scale.pick(16, 24)
    synthetic_costs.warm_up()
    rows = [synthetic_costs.measured(kind, n, costs, tuples) for n in numbers for kind in KINDS]
    return judged_4a([row | {"d_input_ms": 1e3 * costs.input_s} for row in rows])


def judged_4a(rows: Sequence[Row]) -> Found:
    by = {kind: {row["threads"]: row for row in rows if row["kind"] == kind} for kind in KINDS}
    off = {kind: max(row["measured_ms"] / row["model_ms"] for row in own.values()) for kind, own in by.items()}
    least = {kind: min(row["measured_ms"] / row["model_ms"] for row in own.values()) for kind, own in by.items()}
    best = {kind: min(own, key=lambda n: own[n]["measured_ms"]) for kind, own in by.items()}
    most = max(by["virtual"])
    gain = by["pure"][most]["measured_ms"] / by["virtual"][most]["measured_ms"]
    waits = {kind: own[most]["latency_ms"] for kind, own in by.items()}
    unit = rows[0]["d_input_ms"]
    claims = [
        Claim("virtual parallelism performs as the model says", off["virtual"] < 1.6 and least["virtual"] > 0.7,
              f"a tuple takes {least['virtual']:.2f} to {off['virtual']:.2f} times what the model has"),
        Claim("pure parallelism performs as the model says", off["pure"] < 1.6 and least["pure"] > 0.7,
              f"a tuple takes {least['pure']:.2f} to {off['pure']:.2f} times what the model has", quick=False,
              instead="Pushing one tuple to n runs takes longer than the model's routing: the input thread's time is "
                      "in the data."),
        Claim("virtual parallelism gains up to more threads than pure", best["virtual"] > best["pure"],
              f"best with {best['virtual']} and with {best['pure']} threads"),
        Claim("it has the higher throughput with many threads", gain > 1.3, f"{gain:.1f} times with {most} threads"),
        Claim("and the lower latency", waits["virtual"] < waits["pure"],
              f"{waits['virtual']:.1f} against {waits['pure']:.1f} ms with {most} threads", cores=most + 2),
    ]  # fmt: skip
    panels = [
        Panel("processing threads", "throughput, in units of one input thread's", [
            line for kind, own in by.items() for line in (
                Line(kind, list(own), [unit / row["measured_ms"] for row in own.values()]),
                Line(f"{kind}, the model", list(own), [unit / row["model_ms"] for row in own.values()]),
            )
        ]),
        Panel("processing threads", "latency by the clock, ms", [
            Line(kind, list(own), [row["latency_ms"] for row in own.values()]) for kind, own in by.items()
        ]),
    ]  # fmt: skip
    return Found(
        f"With a d^I of {unit:g} ms virtual parallelism is best with {best['virtual']} threads and pure with "
        f"{best['pure']}; with {most} virtual lets {gain:.1f} times as much through.",
        rows, claims, panels,
        "Throughput is that of threads with a core each, by processor time. Pure is n runs of plait, not Flink; what "
        "plait does to push and to take is in the costs. Larger costs than the paper's 0.7 ms keep a push to 16 runs "
        "within them.",
    )  # fmt: skip


@cache
def forwarded(scale: Scale) -> list[dict[str, Any]]:
    numbers = scale.pick((1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8, 16))
    return operators.forwarding(scale.size == "quick", threads=numbers, rows=scale.pick(4_000, 60_000))


def figure_4b(scale: Scale) -> Found:
    return judged_4b(forwarded(scale))


def judged_4b(rows: Sequence[Row]) -> Found:
    many = [row for row in rows if row["threads"] > 1]
    last, first = rows[-1], rows[0]
    dearer = min(row["pure cpu_us"] / row["virtual cpu_us"] for row in many)
    grows = {kind: last[f"{kind} cpu_us"] / first[f"{kind} cpu_us"] for kind in KINDS}
    instead = (
        "Here a share reads the gate for itself, so that it can change threads without a barrier, and every thread reads every "
        f"tuple: one costs {grows['virtual']:.1f} times as much with {last['threads']} threads as with one (docs/papers.md, "
        "ESG's calls)"
    )
    claims = [
        Claim("both give the same results, in the same order", all(row["same results"] for row in rows),
              f"{len(rows)} numbers of threads"),
        Claim("a tuple costs pure parallelism more than virtual, with any number of threads", dearer > 1.0,
              f"at least {dearer:.2f} times the processor time", quick=False, instead=instead),
        Claim("virtual parallelism has the higher throughput with many threads",
              last["virtual tuples_per_s"] > last["pure tuples_per_s"],
              f"{last['virtual tuples_per_s'] / last['pure tuples_per_s']:.1f} times with {last['threads']} threads",
              quick=False, instead=instead),
        Claim("and loses less by more threads", grows["virtual"] < grows["pure"],
              f"a tuple costs {grows['virtual']:.2f} times as much with {last['threads']} threads as with one, pure "
              f"{grows['pure']:.2f} times",
              quick=False, instead=instead),
        Claim("its latency is lower", last["virtual push_p50_ms"] < last["pure push_p50_ms"],
              f"{last['virtual push_p50_ms']:.1f} against {last['pure push_p50_ms']:.1f} ms", cores=4, quick=False,
              instead=instead),
    ]  # fmt: skip
    panels = [
        Panel("processing threads", y, [
            Line(kind, [row["threads"] for row in rows], [row[f"{kind} {column}"] for row in rows]) for kind in KINDS
        ])
        for y, column in (("tuples a second", "tuples_per_s"), ("processor time a tuple, us", "cpu_us"),
                          ("latency, ms", "push_p50_ms"))
    ]  # fmt: skip
    return Found(
        f"Forwarding with {last['threads']} threads, virtual parallelism lets "
        f"{last['virtual tuples_per_s'] / last['pure tuples_per_s']:.1f} "
        f"times as many tuples through as pure, at {1 / (last['pure cpu_us'] / last['virtual cpu_us']):.2f} of the "
        f"processor time.",
        rows, claims, panels,
        "Tweets are made up, as many as a run of seconds takes; pure is n runs of plait, each with its own tuples, "
        "whose results are sorted together, not Flink. Latency is that of a run flat out, with all that waits in its "
        "queues.",
    )  # fmt: skip
