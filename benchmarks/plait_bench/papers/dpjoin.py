"""Studies of the DP-Join paper's evaluation (section 5).

Figures 6 and 7a and table 1 are one sweep of layouts, and 8b and 9 are two of another kind: `layouts` has how they are run. A
claim about more workers than there are cores is decided by processor time or by counted comparisons; one about latency needs a
core for each worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from math import sqrt
from typing import Any

from plait.models import dpjoin as model
from plait_bench.band import query
from plait_bench.papers import layouts
from plait_bench.papers.layouts import HANDSHAKE, HIT_RATE, LINEAR, RECTANGULAR, SQUARE, Shape, kind_of
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale, Study, slope
from plait_bench.papers.sustained import steady, sustained

#: Table 1: joined pairs a second by shape.
TABLE_1 = {(2, 3): 9301, (6, 1): 8529, (3, 3): 14047, (9, 1): 13599, (4, 4): 21740, (2, 8): 21700, (16, 1): 21659}
#: Figure 6: pairs a second of 2 and 4 workers, and those that its streams give, by equation 4.
LINEAR_2, LINEAR_4, MAXIMUM = 3100, 6200, 9526
#: What its streams ask for, in units of what one worker offers: half of what 2 workers do.
LOAD = MAXIMUM / (LINEAR_2 / 2)
SHAPES: tuple[Shape, ...] = (
    (1, 1), (2, 1), (4, 1), (6, 1), (7, 1), (8, 1), (9, 1), (16, 1), (2, 3), (2, 4), (2, 8), (2, 2), (3, 3), (4, 4),
)  # fmt: skip
KINDS = (LINEAR, RECTANGULAR, SQUARE)
CORES = (
    "Offered bandwidth is that of workers with a core each, by the processor time of the busiest; what this machine did by the clock "
    "stands in the data. "
)


# --- bandwidth ----------------------------------------------------------------------------------------------------


@cache
def bandwidths(scale: Scale) -> list[dict[str, Any]]:
    """What each layout and Handshake Join offer, and what streams at `LOAD` times a worker's bandwidth ask for."""
    window, rounds = scale.pick(16_000, 40_000, 100_000), scale.pick(1, 3)
    chains = ((1, 1), (4, 1)) if scale.size == "quick" else ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1))
    shapes = [(kind_of(*shape), shape) for shape in SHAPES] + [(HANDSHAKE, shape) for shape in chains]
    return layouts.offered(window, shapes, rounds)


def by_kind(rows: Sequence[Row], kind: str) -> dict[int, Row]:
    """Rows of a kind by their number of workers."""
    return {row["workers"]: row for row in sorted(rows, key=lambda row: row["workers"]) if row["kind"] == kind}


def optimal(rows: Sequence[Row]) -> dict[str, int | None]:
    """The fewest workers of each kind of layout that offer what the streams ask for; None where none of them does."""
    needed = LOAD * by_kind(rows, LINEAR)[1]["offered"]
    enough = {kind: [n for n, row in by_kind(rows, kind).items() if row["offered"] >= needed] for kind in KINDS}
    return {kind: min(numbers, default=None) for kind, numbers in enough.items()}


def judged_6(rows: Sequence[Row]) -> Found:
    linear, one = by_kind(rows, LINEAR), by_kind(rows, LINEAR)[1]
    asked, found = LOAD * one["offered"], optimal(rows)
    ordered = [found[kind] or 99 for kind in KINDS]
    twice = linear[4]["offered"] / linear[2]["offered"]
    # Equation 4 in the streams' own time: as many tuples came in the span that was measured as a window has.
    expected = model.max_bandwidth(*(one["window"] / one["span_s"],) * 2, one["window_s"], HIT_RATE)
    off = one["results"] / one["span_s"] / expected - 1
    chain = one["offered"] / by_kind(rows, HANDSHAKE)[1]["offered"]
    claims = [
        Claim("the pairs that are found are those of equation 4, within 2 percent", abs(off) < 0.02, f"{100 * off:+.2f} percent"),
        Claim("the linear layout needs the fewest workers and the square one the most", ordered == sorted(ordered), f"{found}",
              quick=False),
        Claim("the optimal degrees are those of the model, 7, 8 and 9", ordered == [7, 8, 9], f"{found}", quick=False,
              instead=f"Seven workers in a line offered {linear[7]['offered'] / asked:.2f} of what is asked for, where perfect scaling has "
                      f"{7 / LOAD:.2f}: they come one worker sooner or later."),
        Claim("four workers offer about twice what two do", 1.4 < twice < 2.8, f"{twice:.2f} times"),
        Claim("one worker offers a fifth more than one of Handshake Join", chain > 1.2, f"{chain:.2f} times",
              instead="Handshake Join is a rival in plait here: it scans with the same kernels and lets tuples go by a counter, so that "
                      "the second scan that the original makes is not there."),
    ]  # fmt: skip
    lines = [
        Line(kind, [n for n in by_kind(rows, kind) if n <= 9],
             [min(row["offered"], asked) for n, row in by_kind(rows, kind).items() if n <= 9])
        for kind in (*KINDS, HANDSHAKE)
    ]  # fmt: skip
    panels = [
        Panel("workers", "pairs a second", [*lines, Line("asked for, equation 4", [1, 9], [asked, asked])], title="here"),
        Panel("workers", "pairs a second", [
            Line("linear", [2, 4], [LINEAR_2, LINEAR_4], published=True),
            Line("asked for, equation 4", [1, 9], [MAXIMUM, MAXIMUM], published=True),
        ], title="2,100 t/s, windows of 300 s"),
    ]  # fmt: skip
    reached = ", ".join(f"{kind} {found[kind]}" for kind in KINDS)
    return Found(
        f"Streams that ask for {LOAD:.1f} times what one worker offers are served by these numbers of workers: {reached}.",
        rows, claims, panels,
        CORES + "Rates and windows are chosen so that one worker has as large a part of what is asked for as in the paper.",
    )  # fmt: skip


def figure_6(scale: Scale) -> Found:
    return judged_6(bandwidths(scale))


def judged_7a(rows: Sequence[Row], cores: int) -> Found:
    def scaled(kind: str, column: str = "offered") -> dict[int, float]:
        own = by_kind(rows, kind)
        return {n: model.scalability(row[column], own[1][column]) for n, row in own.items()}

    linear, chain, wall = scaled(LINEAR), scaled(HANDSHAKE), scaled(LINEAR, "wall")
    worst = min(linear, key=lambda n: linear[n] / n)
    uneven = {n: n * row["busiest_part"] for n, row in by_kind(rows, HANDSHAKE).items()}
    most = max((n for n in wall if n <= max(cores // 2, 1)), default=1)
    last = max(chain)
    claims = [
        Claim("bandwidth grows nearly as workers do", all(each > (0.65 if n < 10 else 0.5) * n for n, each in linear.items()),
              f"at worst {linear[worst]:.2f} times with {worst} workers"),
        Claim("so it does by the clock where there are cores", wall[most] > 0.5 * most, f"{wall[most]:.2f} times with {most}", cores=8),
        Claim("Handshake Join scales much as DP-Join does", chain[last] > 0.6 * linear[last],
              f"{chain[last]:.2f} against {linear[last]:.2f} times with {last} workers",
              instead=f"Pushed flat out its tuples age in bursts, and meet unevenly: of {last} workers the busiest made {uneven[last]:.1f} "
                      "times the mean's comparisons."),
    ]  # fmt: skip
    panel = Panel("workers", "bandwidth, of one worker's", [
        Line("ideal", list(linear), list(linear)), Line("DP-Join, a core each", list(linear), list(linear.values())),
        Line("Handshake Join, a core each", list(chain), list(chain.values())),
        Line("DP-Join, by the clock", list(wall), list(wall.values())),
    ])  # fmt: skip
    return Found(
        f"With a core each 16 workers in a line offer {linear[16]:.1f} times what one does, and {linear[4]:.1f} times with 4.",
        rows, claims, [panel], CORES,
    )  # fmt: skip


def figure_7a(scale: Scale) -> Found:
    return judged_7a(bandwidths(scale), scale.cores)


def judged_table_1(rows: Sequence[Row]) -> Found:
    own = {(row["rows"], row["columns"]): row for row in rows if row["kind"] != HANDSHAKE}
    table = [
        {"workers": m * n, "layout": kind_of(m, n), "shape": f"{m} x {n}", "offered": own[m, n]["offered"],
         "comparisons": own[m, n]["comparisons"], "published": pairs}
        for (m, n), pairs in TABLE_1.items()
    ]  # fmt: skip
    degrees: dict[int, list[float]] = {}
    for row in table:
        degrees.setdefault(row["workers"], []).append(row["offered"])
    apart = {n: max(values) / min(values) for n, values in degrees.items()}
    claims = [
        Claim("layouts of as many workers make the same comparisons", len({row["comparisons"] for row in table}) == 1,
              f"{table[0]['comparisons']:,} each"),
        Claim("and offer about the same bandwidth, whatever their shape", max(apart.values()) < 1.5,
              ", ".join(f"{n} workers: {ratio:.2f} times apart" for n, ratio in apart.items())),
    ]  # fmt: skip
    names = [f"{row['workers']}: {row['shape']}" for row in table]
    panels = [
        Panel("workers: layout", "pairs a second", [Line("here, a core each", names, [row["offered"] for row in table])], bars=True),
        Panel("workers: layout", "pairs a second", [Line("table 1", names, list(TABLE_1.values()), published=True)], bars=True),
    ]
    return Found(
        f"The layouts of 6, 9 and 16 workers differ by {100 * (max(apart.values()) - 1):.0f} percent at most in what they offer.",
        table, claims, panels, CORES,
    )  # fmt: skip


def table_1(scale: Scale) -> Found:
    return judged_table_1(bandwidths(scale))


# --- sustained rates ----------------------------------------------------------------------------------------------


@cache
def rates(scale: Scale) -> list[dict[str, Any]]:
    """The highest rate a stream that linear layouts and Handshake Join keep up with, by workers and windows of W and 3 W."""
    short = scale.pick(0.05, 0.4, 1.0)
    numbers = scale.pick((1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8, 15, 16, 24, 32))
    rows = []
    for window_s in (short, 3 * short):
        for kind, workers in [(LINEAR, n) for n in numbers] + [(HANDSHAKE, n) for n in numbers[: scale.pick(1, 3)]]:
            options = layouts.options_of(kind, (workers, 1))
            at = partial(steady, query(window_s), window_s=window_s, seconds=window_s / 2, **options)
            guess = (workers * 6e9 / window_s) ** 0.5
            made = sustained(lambda rate, at=at: at(rate=rate), guess=guess, clock="processor", runs=scale.pick(2, 3))  # type: ignore[misc]
            rows.append({
                "kind": kind, "workers": workers, "window_s": window_s, "rate": made.rate, "runs": made.runs,
                "comparisons_per_s": made.at.comparisons_per_s("processor"),
                # What is needed goes with the square of the rate: the same run tells what is sustained by the clock.
                "wall_rate": made.at.rate * sqrt(made.at.keeps_up("wall")),
            })  # fmt: skip
    return rows


def judged_7b(rows: Sequence[Row], cores: int) -> Found:
    windows = sorted({row["window_s"] for row in rows})
    by: dict[tuple[str, str, float], dict[int, float]] = {}
    for row in rows:
        for clock in ("rate", "wall_rate"):
            by.setdefault((row["kind"], clock, row["window_s"]), {})[row["workers"]] = row[clock]
    short, long = (by[LINEAR, "rate", window] for window in windows)
    ratio = max(short[n] / long[n] for n in short), min(short[n] / long[n] for n in short)
    power = slope(list(short), list(short.values()))
    wall = by[LINEAR, "wall_rate", windows[0]]
    within, beyond = max(n for n in wall if n <= max(cores, 1)), max(wall)
    claims = [
        Claim("longer windows lower the rate and change nothing else: by the root of 3", ratio[0] < 2.6 and ratio[1] > 1.2,
              f"{ratio[1]:.2f} to {ratio[0]:.2f} times, the root is 1.73"),
        Claim("the rate goes with the root of the workers", 0.3 < power < 0.7, f"with their power {power:.2f}"),
        Claim("more workers than cores add little", beyond == within or wall[beyond] < 1.4 * wall[within],
              f"{beyond} workers on {cores} cores sustain {wall[beyond] / wall[within]:.2f} times what {within} do"),
    ]  # fmt: skip
    panels = [
        Panel("workers", "tuples a second and stream", [
            Line(f"{'DP-Join' if kind == LINEAR else 'Handshake Join'}, {window:g} s", list(found), list(found.values()))
            for (kind, of, window), found in by.items() if of == clock
        ], title="a core each" if clock == "rate" else "by the clock, on this machine")
        for clock in ("rate", "wall_rate")
    ]  # fmt: skip
    return Found(
        f"With a core each rates go with the workers' number to the power {power:.2f}; windows three times as long cost a factor of "
        f"{(ratio[0] + ratio[1]) / 2:.2f}.",
        rows, claims, panels,
        "Windows of a second and less where the paper has 300 and 900 s: our workers compare about 30 times as fast, and the rates "
        "are higher by more than that. No difference is made between threads of one core and cores.",
    )  # fmt: skip


def figure_7b(scale: Scale) -> Found:
    return judged_7b(rates(scale), scale.cores)


# --- latency ------------------------------------------------------------------------------------------------------


def degree(scale: Scale) -> list[tuple[str, Shape]]:
    """Layouts of as many workers: of 16 where there are as many cores, else of 4, which have no rectangular one."""
    if scale.cores >= 16:
        return [(SQUARE, (4, 4)), (RECTANGULAR, (2, 8)), (LINEAR, (16, 1))]
    return [(SQUARE, (2, 2)), (LINEAR, (4, 1))]


@cache
def courses(scale: Scale) -> list[dict[str, Any]]:
    steps = scale.pick(layouts.Course(250, 0.4, 1.0, 5), layouts.Course(400, 4.0, 8.0, 16), layouts.Course(600, 6.0, 12.0, 24))
    shapes = [*degree(scale), (HANDSHAKE, degree(scale)[-1][1])]
    return [row for kind, shape in shapes for row in layouts.course(steps, kind, shape)]


def judged_8a(rows: Sequence[Row]) -> Found:
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    full = {kind: [row for row in rows if row["kind"] == kind and row["windows"] > 1.2] for kind in kinds}
    steady_ms = {kind: sorted(row["median_ms"] for row in own)[len(own) // 2] for kind, own in full.items()}
    flat, begins = [], []
    for kind in kinds:
        if kind != HANDSHAKE:
            values = [row["comparisons_a_tuple"] for row in full[kind]]
            flat.append(max(values) / min(values))
            begins.append(next(row["comparisons_a_tuple"] for row in rows if row["kind"] == kind) / values[-1])
    workers = max(row["workers"] for row in rows)
    apart = steady_ms[HANDSHAKE] / min(value for kind, value in steady_ms.items() if kind != HANDSHAKE)
    claims = [
        Claim("comparisons a tuple grow until the windows are full, and then stay", max(flat) < 1.1 and max(begins) < 0.6,
              f"at first {max(begins):.2f} of the last; when full within a factor {max(flat):.3f}"),
        Claim("the square layout has a lower latency than the linear one", steady_ms[SQUARE] < steady_ms[LINEAR],
              f"{steady_ms[SQUARE]:.3f} against {steady_ms[LINEAR]:.3f} ms", cores=workers, quick=False),
        Claim("Handshake Join's is higher by orders of magnitude", apart > 8, f"{apart:.0f} times: its tuples wait for the window",
              quick=True),
    ]  # fmt: skip
    panels = [
        Panel("seconds", "mean latency, ms", [
            Line(kind, [row["second"] for row in rows if row["kind"] == kind and row["results"]],
                 [row["latency_ms"] for row in rows if row["kind"] == kind and row["results"]])
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
        "Tuples come one by one, and each costs tens of nanoseconds a comparison: plait compares 30 times as fast as the paper's join, "
        "and a hand-over between threads would hide the layout. Handshake Join is orders slower by the window's length, which is "
        "seconds here and 300 s there. Latency is from the moment a tuple is ready.",
    )  # fmt: skip


def figure_8a(scale: Scale) -> Found:
    return judged_8a(courses(scale))


def handshake_ms(rows: Sequence[Row]) -> float:
    """The median latency of Handshake Join in a course whose windows were full."""
    values = sorted(row["median_ms"] for row in rows if row["kind"] == HANDSHAKE and row["windows"] > 1.2 and row["results"])
    return float(values[len(values) // 2])


SYMMETRIC: tuple[Shape, ...] = ((1, 1), (2, 1), (4, 1), (2, 2), (6, 1), (2, 3), (9, 1), (3, 3), (16, 1), (2, 8), (4, 4))
ASYMMETRIC: tuple[Shape, ...] = ((1, 1), (4, 1), (2, 2), (9, 1), (3, 3), (15, 1), (5, 3), (3, 5), (16, 1), (4, 4))


@cache
def singles(scale: Scale, rates_as: tuple[int, int], shapes: tuple[Shape, ...]) -> list[dict[str, Any]]:
    """The longest part and the latency by layouts, of streams whose rates are as these."""
    window = scale.pick(1_200, 6_000, 12_000)
    each = layouts.Singles(
        (window * rates_as[0], window * rates_as[1]), scale.pick(2, 4), scale.pick(10, 150, 300), scale.pick(0.003, 0.004)
    )
    found = layouts.by_layout(each, [(kind_of(*shape), shape) for shape in shapes])
    return [row | {"window_x": each.windows[0], "window_y": each.windows[1], "part": row["longest"] / sum(each.windows) * 2}
            for row in found]  # fmt: skip


def latency_panels(rows: Sequence[Row], chain_ms: float) -> list[Panel]:
    return [
        Panel("workers", y, [
            Line(kind, list(own), [row[column] for row in own.values()])
            for kind in KINDS if (own := by_kind(rows, kind))
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
        abs(row["longest"] / (2 * model.symmetric_latency(1, window, 1, row["rows"], row["columns"])) - 1) for row in rows
    )
    apart = chain_ms / max(row["latency_ms"] for row in rows)
    claims = [
        Claim("of as many workers the square layout has the shortest longest part",
              all(square[n]["longest"] < linear[n]["longest"] for n in square)
              and all(square[n]["longest"] <= row["longest"] <= linear[n]["longest"] for n, row in rectangular.items() if n in square),
              ", ".join(f"{n}: {square[n]['part']:.3f} against {linear[n]['part']:.3f} of a window" for n in square)),
        Claim("the longest part is that of equation 9", off < 0.03, f"within {100 * off:.1f} percent"),
        Claim("more workers make it shorter", all(a > b for a, b in pairwise([row["longest"] for row in square.values()]))
              and all(a > b for a, b in pairwise([row["longest"] for row in linear.values()])),
              f"{square[4]['part']:.3f}, {square[9]['part']:.3f}, {square[16]['part']:.3f} of a window in squares"),
        Claim("the square layout's latency is the lowest", square[9]["latency_ms"] < linear[9]["latency_ms"],
              f"{square[9]['latency_ms']:.3f} against {linear[9]['latency_ms']:.3f} ms with 9 workers", cores=10, quick=False),
        Claim("Handshake Join's is higher by orders of magnitude", apart > 4, f"{apart:.0f} times"),
    ]  # fmt: skip
    return Found(
        f"A tuple's longest part is {square[16]['part']:.2f} of a window in 4 x 4 workers, {rectangular[16]['part']:.2f} in 2 x 8, "
        f"and {linear[16]['part']:.2f} in a line of 16.",
        rows, claims, latency_panels(rows, chain_ms),
        "The longest part is counted: the most comparisons that one worker makes for a tuple. Latency is measured beside it, of results "
        "that wait for the whole part, since a tuple's results are given out together; with fewer cores than workers it says little. "
        "Handshake Join is that of figure 8a.",
    )  # fmt: skip


def figure_8b(scale: Scale) -> Found:
    return judged_8b(singles(scale, (1, 1), SYMMETRIC), handshake_ms(courses(scale)))


def judged_9(rows: Sequence[Row], chain_ms: float) -> Found:
    own = {(row["rows"], row["columns"]): row for row in rows}
    linear = by_kind(rows, LINEAR)
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
        Claim("the linear layout's latency grows with its workers", linear[16]["longest"] > linear[4]["longest"],
              f"its longest part is {linear[4]['part']:.3f} of a window with 4 workers and {linear[16]['part']:.3f} with 16",
              instead="Its tuples are not handed on from worker to worker: all of them read the gate. What grew in the paper was the way "
                      "along the line."),
        Claim("Handshake Join's is higher by orders of magnitude", apart > 3, f"{apart:.0f} times"),
    ]  # fmt: skip
    return Found(
        f"With streams of 1 to 3 a tuple's longest part is {best['part']:.2f} of a window in 3 x 5 workers, {square['part']:.2f} in "
        f"4 x 4, and {linear[15]['part']:.2f} in a line of 15.",
        rows, claims, [
            *latency_panels(rows, chain_ms),
            Panel("layout", "mean latency, ms", [Line("best", ["3 x 5", "4 x 4"], [0.26, 0.30], published=True)], bars=True,
                  title="1,000 and 3,000 t/s, windows of 300 s"),
        ],
        "A part is told of the mean of both windows, in the mean of all results: half of them are found by tuples of either stream. Latency "
        "needs a core for each worker. Handshake Join is that of figure 8a, with equal rates.",
    )  # fmt: skip


def figure_9(scale: Scale) -> Found:
    return judged_9(singles(scale, (1, 3), ASYMMETRIC), handshake_ms(courses(scale)))


STUDIES: tuple[Study, ...] = (
    Study("dpjoin", "figure 6", "How many workers each layout needs to find all pairs", figure_6,
          "Streams of 2,100 t/s and 300 s take 7 workers in a line, 8 in a rectangle, 9 in a square; 2 workers offer 3,100 pairs/s and 4 "
          "6,200; one worker is 24 percent faster than one of Handshake Join."),
    Study("dpjoin", "figure 7a", "Scalability of the linear layout", figure_7a,
          "Near-optimal up to 16 workers, with threads of the operating system's second contexts for Emitter and Collector."),
    Study("dpjoin", "figure 7b", "The highest rate that is sustained, by workers and windows", figure_7b,
          "Windows of 900 s behave as those of 300 s at lower rates; 32 workers on 16 cores sustain about what 16 do."),
    Study("dpjoin", "table 1", "Bandwidth that layouts of as many workers offer", table_1,
          "6 workers: 9,301 pairs/s in a rectangle, 8,529 in a line; 9: 14,047 in a square, 13,599; 16: 21,740, 21,700 and 21,659."),
    Study("dpjoin", "figure 8a", "Latency in the course of a run, by layout", figure_8a,
          "Steady once windows are full; 0.95 ms in a square, 2.42 in a line; Handshake Join four orders of magnitude more."),
    Study("dpjoin", "figure 8b", "Latency by workers and layout, streams of equal rates", figure_8b,
          "The square layout has the lowest latency; 4 x 4 is best, slightly below 2 x 8."),
    Study("dpjoin", "figure 9", "Latency by workers and layout, one stream three times as fast", figure_9,
          "0.26 ms with 3 x 5 workers, 0.30 with 4 x 4; a line gets slower with more workers."),
)  # fmt: skip
