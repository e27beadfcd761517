"""DP-Join's section 5.2: figures 6, 7a and 7b, and table 1.

Figures 6 and 7a and table 1 are one sweep of layouts. A claim about more workers than there are cores is decided by processor
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from math import sqrt
from typing import Any

from plait.models import dpjoin as model
from plait_bench.band import query
from plait_bench.papers.dpjoin.layouts import (
    HANDSHAKE,
    HIT_RATE,
    KINDS,
    LINEAR,
    Shape,
    by_kind,
    kind_of,
    offered,
    options_of,
)  # fmt: skip
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale, slope
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
CORES = (
    "Offered bandwidth is that of workers with a core each, by the processor time of the busiest. What this machine "
    "did by the clock stands in the data."
)


@cache
def bandwidths(scale: Scale) -> list[dict[str, Any]]:
    """What each layout and Handshake Join offer, and what streams at `LOAD` times a worker's bandwidth ask for."""
    # Of 16,000 tuples 16 workers have so few each that what they do besides is half of their time: 8.0 to 8.2 times one; of
    # 32,000 10.5 to 10.8.
    window, rounds = scale.pick(32_000, 60_000), scale.pick(2, 3)
    chains = ((1, 1), (4, 1)) if scale.size == "quick" else ((1, 1), (2, 1), (4, 1), (8, 1), (16, 1))
    shapes = [(kind_of(*shape), shape) for shape in SHAPES] + [(HANDSHAKE, shape) for shape in chains]
    return offered(window, shapes, rounds)


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
              instead=f"Seven workers in a line offered {linear[7]['offered'] / asked:.2f} of what is asked for, where "
                      f"perfect scaling has {7 / LOAD:.2f}."),
        Claim("four workers offer about twice what two do", 1.4 < twice < 2.8, f"{twice:.2f} times"),
        Claim("one worker offers a fifth more than one of Handshake Join", chain > 1.2, f"{chain:.2f} times",
              instead="Handshake Join is a rival in plait here: it scans with the same kernels and lets tuples go by a "
                      "counter, so that the second scan that the original makes is not there."),
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
        CORES + " Rates and windows are chosen so that one worker has as large a part of what is asked for as in the paper.",
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
        Claim("so it does by the clock where there are cores", most > 1 and wall[most] > 0.5 * most,
              f"{wall[most]:.2f} times with {most}", cores=8),
        Claim("Handshake Join scales much as DP-Join does", chain[last] > 0.6 * linear[last],
              f"{chain[last]:.2f} against {linear[last]:.2f} times with {last} workers",
              instead=f"Pushed flat out its tuples age in bursts, and meet unevenly: of {last} workers the busiest "
                      f"made {uneven[last]:.1f} times the mean's comparisons."),
    ]  # fmt: skip
    panel = Panel("workers", "bandwidth, of one worker's", [
        Line("ideal", list(linear), list(linear)), Line("DP-Join, a core each", list(linear), list(linear.values())),
        Line("Handshake Join, a core each", list(chain), list(chain.values())),
        Line("DP-Join, by the clock", list(wall), list(wall.values())),
    ])  # fmt: skip
    return Found(
        f"With a core each 16 workers in a line offer {linear[16]:.1f} times what one does, and {linear[4]:.1f} times "
        "with 4.",
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
    line = own[16, 1]["offered"] / own[4, 4]["offered"]
    claims = [
        Claim("layouts of as many workers make the same comparisons", len({row["comparisons"] for row in table}) == 1,
              f"{table[0]['comparisons']:,} each"),
        Claim("and offer about the same bandwidth, whatever their shape", max(apart.values()) < 1.5,
              ", ".join(f"{n} workers: {ratio:.2f} times apart" for n, ratio in apart.items()), quick=False),
        Claim("of 16 workers those in a line offer slightly less", line < 1.05, f"{line:.2f} of what the square ones do",
              quick=False),
    ]  # fmt: skip
    names = [row["shape"] for row in table]
    panels = [
        Panel(
            "layout", "pairs a second", [Line("here, a core each", names, [row["offered"] for row in table])], bars=True
        ),
        Panel("layout", "pairs a second", [Line("table 1", names, list(TABLE_1.values()), published=True)], bars=True),
    ]
    return Found(
        f"The layouts of 6, 9 and 16 workers differ by {100 * (max(apart.values()) - 1):.0f} percent at most in what "
        f"they offer.",
        table, claims, panels, CORES,
    )  # fmt: skip


def table_1(scale: Scale) -> Found:
    return judged_table_1(bandwidths(scale))


# --- sustained rates ----------------------------------------------------------------------------------------------


@cache
def rates(scale: Scale) -> list[dict[str, Any]]:
    """The highest rate a stream that linear layouts and Handshake Join keep up with, by workers and windows of W and 3 W."""
    short = scale.pick(0.05, 0.4)
    numbers = scale.pick((1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8, 15))
    rows = []
    for window_s in (short, 3 * short):
        for kind, workers in [(LINEAR, n) for n in numbers] + [(HANDSHAKE, n) for n in numbers[: scale.pick(1, 3)]]:
            options = options_of(kind, (workers, 1))
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
    wall, chain = by[LINEAR, "wall_rate", windows[0]], by[HANDSHAKE, "rate", windows[0]]
    common = max(chain)
    within, beyond = max(n for n in wall if n <= max(cores, 1)), max(wall)
    claims = [
        Claim("longer windows lower the rate and change nothing else: by the root of 3", ratio[0] < 2.6 and ratio[1] > 1.2,
              f"{ratio[1]:.2f} to {ratio[0]:.2f} times, the root is 1.73"),
        Claim("the rate goes with the root of the workers", 0.3 < power < 0.7, f"with their power {power:.2f}"),
        Claim("DP-Join sustains more than Handshake Join", short[common] > chain[common],
              f"{short[common] / chain[common]:.2f} times as much with {common} workers", quick=False),
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
        f"With a core each rates go with the workers' number to the power {power:.2f}; windows three times as long "
        f"cost a factor of {(ratio[0] + ratio[1]) / 2:.2f}.",
        rows, claims, panels,
        "Windows of a second and less where the paper has 300 and 900 s: our workers compare about 30 times as fast, "
        "and the rates are higher by more than that. No difference is made between threads of one core and cores.",
    )  # fmt: skip


def figure_7b(scale: Scale) -> Found:
    return judged_7b(rates(scale), scale.cores)
