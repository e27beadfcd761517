"""DP-Join's section 5.3: figures 8a, 8b and 9.

With fewer cores than workers latency says little of a layout; the claims rest on the longest part of a tuple's comparisons, which
is counted. Those about latency need a core for each worker.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from plait.models import dpjoin as model
from plait_bench.papers.dpjoin.layouts import HANDSHAKE, KINDS, LINEAR, RECTANGULAR, SQUARE, Shape, by_kind, kind_of
from plait_bench.papers.dpjoin.single_tuples import Course, Singles, by_layout, course
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale

FULL = 1.2  # windows, from which on a course counts as steady


def degree(scale: Scale) -> list[tuple[str, Shape]]:
    """Layouts of as many workers: of 16 where there are as many cores, else of 4, which have no rectangular one."""
    if scale.cores >= 16:
        return [(SQUARE, (4, 4)), (RECTANGULAR, (2, 8)), (LINEAR, (16, 1))]
    return [(SQUARE, (2, 2)), (LINEAR, (4, 1))]


@cache
def courses(scale: Scale) -> list[dict[str, Any]]:
    steps = scale.pick(Course(250, 0.4, 1.0, 5), Course(400, 4.0, 8.0, 16))
    shapes = [*degree(scale), (HANDSHAKE, degree(scale)[-1][1])]
    return [row for kind, shape in shapes for row in course(steps, kind, shape)]


def judged_8a(rows: Sequence[Row]) -> Found:
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    full = {kind: [row for row in rows if row["kind"] == kind and row["windows"] > FULL] for kind in kinds}
    steady_ms = {kind: _median_ms(own) for kind, own in full.items()}
    flat, begins = [], []
    for kind in kinds:
        if kind != HANDSHAKE:
            values = [row["comparisons_a_tuple"] for row in full[kind]]
            flat.append(max(values) / min(values))
            begins.append(next(row["comparisons_a_tuple"] for row in rows if row["kind"] == kind) / values[-1])
    workers = max(row["workers"] for row in rows)
    part = steady_ms[HANDSHAKE] / (1e3 * rows[-1]["second"] / rows[-1]["windows"])
    apart = steady_ms[HANDSHAKE] / min(value for kind, value in steady_ms.items() if kind != HANDSHAKE)
    claims = [
        Claim("comparisons a tuple grow until the windows are full, and then stay", max(flat) < 1.4 and max(begins) < 0.6,
              f"at first {max(begins):.2f} of the last; when full within a factor {max(flat):.3f}"),
        Claim("the square layout has a lower latency than the linear one", steady_ms[SQUARE] < steady_ms[LINEAR],
              f"{steady_ms[SQUARE]:.3f} against {steady_ms[LINEAR]:.3f} ms", cores=workers, quick=False),
        Claim("Handshake Join's is a part of the window, since its tuples move as new ones come", 0.1 < part < 1.5,
              f"{part:.2f} of a window"),
        Claim("and higher by orders of magnitude", apart > 8, f"{apart:.0f} times", quick=False),
    ]  # fmt: skip
    panels = [
        Panel("seconds", "median latency, ms", [
            Line(kind, [row["second"] for row in rows if row["kind"] == kind and row["results"]],
                 [row["median_ms"] for row in rows if row["kind"] == kind and row["results"]])
            for kind in kinds
        ], title=f"{workers} workers", log_y=True),
        Panel("seconds", "comparisons a tuple", [
            Line(kind, [row["second"] for row in rows if row["kind"] == kind],
                 [row["comparisons_a_tuple"] for row in rows if row["kind"] == kind])
            for kind in kinds if kind != HANDSHAKE
        ]),
        Panel("layout", "mean latency, ms", [Line("steady", [SQUARE, LINEAR], [0.95, 2.42], published=True)],
              title="2,500 t/s, windows of 300 s", bars=True),
    ]  # fmt: skip
    said = ", ".join(f"{kind} {value:.2g} ms" for kind, value in steady_ms.items())
    return Found(
        f"Once its windows are full a run is steady; the median latency then is {said}.", rows, claims, panels,
        "Tuples come one by one, and each costs tens of nanoseconds a comparison: plait compares 30 times as fast as "
        "the paper's join, and a hand-over between threads would hide the layout. Handshake Join is orders slower by "
        "the window's length, which is seconds here and 300 s there. Latency is from the moment a tuple is ready.",
    )  # fmt: skip


def figure_8a(scale: Scale) -> Found:
    return judged_8a(courses(scale))


def handshake_ms(rows: Sequence[Row]) -> float:
    """The median latency of Handshake Join in a course whose windows were full."""
    return _median_ms([row for row in rows if row["kind"] == HANDSHAKE and row["windows"] > FULL])


def _median_ms(rows: Sequence[Row]) -> float:
    """Of those slices in which results came."""
    values = [row["median_ms"] for row in rows if row["results"]]
    return statistics.median(values) if values else float("nan")


HANDED_ON = "linear, handed on"
SYMMETRIC: tuple[Shape, ...] = ((1, 1), (2, 1), (4, 1), (2, 2), (6, 1), (2, 3), (9, 1), (3, 3), (16, 1), (2, 8), (4, 4))
ASYMMETRIC: tuple[Shape, ...] = ((1, 1), (4, 1), (2, 2), (9, 1), (3, 3), (15, 1), (5, 3), (3, 5), (16, 1), (4, 4))


@cache
def singles(scale: Scale, rates_as: tuple[int, int], shapes: tuple[Shape, ...]) -> list[dict[str, Any]]:
    """The longest part and the latency by layouts, of streams whose rates are as these."""
    window = scale.pick(1_200, 6_000)
    each = Singles(
        (window * rates_as[0], window * rates_as[1]),
        scale.pick(2, 4),
        scale.pick(10, 150),
        scale.pick(0.003, 0.004),
    )
    found = by_layout(each, [(kind_of(*shape), shape) for shape in shapes])
    if rates_as != (1, 1):
        along = by_layout(each, [(LINEAR, (4, 1)), (LINEAR, (16, 1))], emitter=True)
        found += [row | {"kind": HANDED_ON} for row in along]
    return [row | {"window_x": each.windows[0], "window_y": each.windows[1], "part": row["longest"] / sum(each.windows) * 2}
            for row in found]  # fmt: skip


def latency_panels(rows: Sequence[Row], chain_ms: float) -> list[Panel]:
    return [
        Panel("workers", y, [
            Line(kind, list(own), [row[column] for row in own.values()])
            for kind in (*KINDS, HANDED_ON) if (own := by_kind(rows, kind))
        ] + more, log_y=log)
        for y, column, more, log in (
            ("longest part, of a window", "part", [], False),
            ("latency, ms", "latency_ms", [Line(HANDSHAKE, [1, 16], [chain_ms] * 2)], True),
        )
    ]  # fmt: skip


def judged_8b(rows: Sequence[Row], chain_ms: float) -> Found:
    square, linear = by_kind(rows, SQUARE), by_kind(rows, LINEAR)
    rectangular = by_kind(rows, RECTANGULAR)
    window = rows[0]["window_x"]
    # Equation 9 has half a scan, that of the partner in the middle; the longest part is the whole of it.
    off = max(
        abs(row["longest"] / (2 * model.symmetric_latency(1, window, 1, row["rows"], row["columns"])) - 1)
        for row in rows
    )
    apart = chain_ms / max(row["latency_ms"] for row in rows)
    claims = [
        Claim("of as many workers the square layout has the shortest longest part",
              all(square[n]["longest"] < linear[n]["longest"] for n in square)
              and square[16]["longest"] < rectangular[16]["longest"] < linear[16]["longest"],
              ", ".join(f"{n}: {square[n]['part']:.3f} against {linear[n]['part']:.3f} of a window" for n in square)),
        Claim("the longest part is that of equation 9", off < 0.03, f"within {100 * off:.1f} percent"),
        Claim("more workers make it shorter", all(a > b for a, b in pairwise([row["longest"] for row in square.values()]))
              and all(a > b for a, b in pairwise([row["longest"] for row in linear.values()])),
              f"{square[4]['part']:.3f}, {square[9]['part']:.3f}, {square[16]['part']:.3f} of a window in squares"),
        Claim("the square layout's latency is the lowest", square[9]["latency_ms"] < linear[9]["latency_ms"],
              f"{square[9]['latency_ms']:.3f} against {linear[9]['latency_ms']:.3f} ms with 9 workers",
              cores=10, quick=False),
        Claim("Handshake Join's is higher by orders of magnitude", apart > 4, f"{apart:.0f} times", quick=False),
    ]  # fmt: skip
    return Found(
        f"A tuple's longest part is {square[16]['part']:.2f} of a window in 4 x 4 workers, "
        f"{rectangular[16]['part']:.2f} in 2 x 8, and {linear[16]['part']:.2f} in a line of 16.",
        rows, claims, latency_panels(rows, chain_ms),
        "The longest part is counted: the most comparisons that one worker makes for a tuple. Latency is measured "
        "beside it, of results that wait for the whole part, since a tuple's results are given out together; with "
        "fewer cores than workers it says little. Handshake Join is that of figure 8a.",
    )  # fmt: skip


def figure_8b(scale: Scale) -> Found:
    return judged_8b(singles(scale, (1, 1), SYMMETRIC), handshake_ms(courses(scale)))


def judged_9(rows: Sequence[Row], chain_ms: float) -> Found:
    own = {(row["rows"], row["columns"]): row for row in rows if row["kind"] != HANDED_ON}
    linear, along = by_kind(rows, LINEAR), by_kind(rows, HANDED_ON)
    best, square = own[3, 5], own[4, 4]
    apart = chain_ms / max(row["latency_ms"] for row in rows)
    claims = [
        Claim("3 x 5 workers have a shorter longest part than 4 x 4", best["longest"] < square["longest"],
              f"{best['part']:.3f} against {square['part']:.3f} of a window, with a worker less"),
        Claim("the layout has to lie the right way round", own[5, 3]["longest"] > best["longest"],
              f"5 x 3 has {own[5, 3]['part']:.3f}"),
        Claim("the rates choose 3 x 5 for 15 workers", model.best_layout(15, 1, 3) == (3, 5), f"{model.best_layout(15, 1, 3)}"),
        Claim("their latency is lower too", best["latency_ms"] < square["latency_ms"],
              f"{best['latency_ms']:.3f} against {square['latency_ms']:.3f} ms", cores=17, quick=False),
        Claim("along a line in which workers hand tuples on, latency grows with their number",
              along[16]["latency_ms"] > along[4]["latency_ms"],
              f"{along[4]['latency_ms']:.3f} ms with 4 workers, {along[16]['latency_ms']:.3f} with 16", cores=17, quick=False),
        Claim("Handshake Join's is higher by orders of magnitude", apart > 3, f"{apart:.0f} times", quick=False),
    ]  # fmt: skip
    return Found(
        f"With streams of 1 to 3 a tuple's longest part is {best['part']:.2f} of a window in 3 x 5 workers, "
        f"{square['part']:.2f} in 4 x 4, and {linear[15]['part']:.2f} in a line of 15.",
        rows, claims, [
            *latency_panels(rows, chain_ms),
            Panel("layout", "mean latency, ms", [Line("best", ["3 x 5", "4 x 4"], [0.26, 0.30], published=True)], bars=True,
                  title="1,000 and 3,000 t/s, windows of 300 s"),
        ],
        "A part is told of the mean of both windows, in the mean of all results: half of them are found by tuples of "
        "either stream. Workers read the gate; with an Emitter they hand tuples on, as in the paper. Latency needs a core "
        "for each worker. Handshake Join is that of figure 8a, with equal rates.",
    )  # fmt: skip


def figure_9(scale: Scale) -> Found:
    return judged_9(singles(scale, (1, 3), ASYMMETRIC), handshake_ms(courses(scale)))
