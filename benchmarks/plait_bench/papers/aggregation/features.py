"""Figures 17, 22 and 27: what the number of keys, of windows and the function's cost do, each a group of four queries.

They are the captions of the figures before them: the same rows, laid beside one another at the most inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import geometric_mean

from plait_bench.papers.aggregation.sweeps import MQ, NAMES, T_GATE, by_inputs, ends, gain, improved, of
from plait_bench.papers.study import Claim, Found, Line, Panel, Row, Scale

KEYS, WINDOWS, COST = (
    tuple(f"{letter}-{kind}" for kind in ("OS", "OI") for letter in (low, low.upper())) for low in "kwf"
)
COSTLY = "Functions of text are computed by who pushes here, in every design: what is left to improve is small"
Group = Mapping[str, Sequence[Row]]


def figure_17(scale: Scale) -> Found:
    return keys({name: by_inputs(scale, name) for name in KEYS})


def figure_22(scale: Scale) -> Found:
    return windows({name: by_inputs(scale, name) for name in WINDOWS})


def figure_27(scale: Scale) -> Found:
    return cost({name: by_inputs(scale, name) for name in (*COST, "k-OS")})


def keys(group: Group) -> Found:
    """Figure 17 of these rows."""
    dearer = _dearer(group, KEYS)
    claim = Claim("more keys cost throughput", geometric_mean(dearer.values()) > 1.1, _told(dearer))
    return _found(group, KEYS, [claim], f"40,000 keys cost {_spread(dearer)} times the work a tuple that 243 do",
                  "Songs are keys by Zipf's law, so a window has fewer of them than there are.")  # fmt: skip


def windows(group: Group) -> Found:
    """Figure 22 of these rows."""
    dearer = _dearer(group, WINDOWS)
    claim = Claim(
        "twice as many windows that a tuple is in cost throughput", geometric_mean(dearer.values()) > 1.3, _told(dearer),
        instead="A tuple updates one pane here, however many windows it is in, and windows are made of panes: twice the windows "
        f"take {_spread(dearer)} times the work, where the paper's WiML fell to 0.58 of its throughput",
    )  # fmt: skip
    return _found(group, WINDOWS, [claim], f"20 windows a tuple cost {_spread(dearer)} times the work that 10 do",
                  "All four have the same tuples a second of event time.")  # fmt: skip


def cost(group: Group) -> Found:
    """Figure 27 of these rows; k-OS is there to compare with."""
    dearer = _dearer(group, COST)
    most = ends(group["k-OS"])[1]
    tuml = {name: gain(group[name], T_GATE, most) for name in ("k-OS", "F-OS")}
    wiml = [gain(group[name], improved(name)[0], most) for name in ("f-OI", "F-OI")]
    claims = [
        Claim("a dearer function costs throughput", geometric_mean(dearer.values()) > 1.05, _told(dearer), quick=False),
        Claim("TuML-SC improves less on MQ where the function is dear", tuml["F-OS"] < tuml["k-OS"],
              f"{tuml['F-OS']:.2f} times on F-OS, {tuml['k-OS']:.2f} on k-OS", quick=False),
        Claim("WiML improves on MQ by about the same, whatever the function costs", 0.5 < wiml[1] / wiml[0] < 2.0,
              f"{wiml[0]:.2f} times on f-OI, {wiml[1]:.2f} on F-OI", quick=False),
    ]  # fmt: skip
    return _found(group, COST, claims, f"A second regular expression makes the work {_spread(dearer)} times that of one",
                  "Functions of text are computed by who pushes, in every design.")  # fmt: skip


def _dearer(group: Group, names: Sequence[str]) -> dict[str, float]:
    """All processor time a tuple of the query with the capital letter over that of the other, design by design."""
    found = {}
    for small, large in (names[:2], names[2:]):
        most = ends(group[small])[1]
        for design in dict.fromkeys(row["design"] for row in group[small]):
            work = [of(group[name], design=design, inputs=most)[0] for name in (small, large)]
            spent = [row["input_ns"] + row["output_ns"] for row in work]
            found[f"{large} {NAMES[design]}"] = spent[1] / spent[0]
    return found


def _spread(times: Mapping[str, float]) -> str:
    return f"{min(times.values()):.2f} to {max(times.values()):.2f}"


def _told(dearer: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {times:.2f}" for name, times in dearer.items()) + " times the work"


def _found(group: Group, names: Sequence[str], claims: Sequence[Claim], says: str, departs: str) -> Found:
    gains = {name: gain(group[name], improved(name)[0], ends(group[name])[1]) for name in names}
    better = Claim("the paper's designs let more through than MQ on all four", min(gains.values()) > 1.05,
                   ", ".join(f"{name} {times:.2f} times" for name, times in gains.items()),
                   quick=False, instead=COSTLY if names == COST else "")  # fmt: skip
    rows = [row for name in names for row in of(group[name], inputs=ends(group[name])[1])]
    panels = [
        Panel("", "tuples/s", _bars(group, names, "tuples_per_s"), title=f"here, {rows[0]['inputs']} inputs", bars=True),
        Panel("", "latency, ms p50", _bars(group, names, "push_p50_ms"), title="here, flat out", bars=True),
        Panel("", "times what MQ lets through", [Line("the paper's design", list(names), list(gains.values()))],
              title="a core for each thread (computed)", bars=True),
    ]  # fmt: skip
    says += f"; TuML-SC on T-Gate and WiML let {_spread(gains)} times as much through as MQ."
    return Found(says, rows, [better, *claims], panels, departs)


def _bars(group: Group, names: Sequence[str], column: str) -> list[Line]:
    found = []
    for kind, design in (("MQ", MQ), ("the paper's design", None)):
        rows = [of(group[n], design=design or improved(n)[0], inputs=ends(group[n])[1])[0] for n in names]
        found.append(Line(kind, list(names), [row[column] for row in rows]))
    return found
