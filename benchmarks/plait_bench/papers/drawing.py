"""A study's picture, as SVG text: ours in full lines, the paper's points hollow and dashed."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

from plait_bench.papers.study import Line, Panel

#: Told apart by people who see fewer colours too (Okabe and Ito), and by their marks.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#8C6D31")
MARKS = "os^Dv<>P"
#: So many places of an axis are named as they are; a line of more than MANY points needs no marks.
FEW, MANY = 8, 60


def svg(panels: Sequence[Panel]) -> str:
    """All panels side by side, three in a row at most."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    across = min(len(panels), 3)
    down = -(-len(panels) // across)
    with matplotlib.rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "plait"}):
        figure, axes = plt.subplots(down, across, figsize=(4.6 * across, 3.5 * down), squeeze=False)
        for at, axis in enumerate(axes.flat):
            if at < len(panels):
                _draw(axis, panels[at])
            else:
                axis.set_visible(False)
        figure.tight_layout()
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        plt.close(figure)
    # As a part of a page it has no head of its own.
    return re.sub(r"^.*?(?=<svg)", "", text.getvalue(), count=1, flags=re.DOTALL)


def _draw(axis: object, panel: Panel) -> None:
    if panel.bars:
        _bars(axis, panel.lines)
    else:
        for at, line in enumerate(panel.lines):
            _line(axis, line, at)
    axis.set_xlabel(panel.x)  # type: ignore[attr-defined]
    axis.set_ylabel(panel.y)  # type: ignore[attr-defined]
    axis.set_title(panel.title)  # type: ignore[attr-defined]
    if panel.log_x:
        axis.set_xscale("log")  # type: ignore[attr-defined]
        axis.xaxis.set_minor_formatter("")  # type: ignore[attr-defined]  # between powers of ten they would overlap
    if panel.log_y:
        axis.set_yscale("log")  # type: ignore[attr-defined]
    else:
        axis.set_ylim(bottom=0)  # type: ignore[attr-defined]
    axis.grid(alpha=0.25)  # type: ignore[attr-defined]
    places = sorted({x for line in panel.lines for x in line.x if not isinstance(x, str)})
    if places and len(places) <= FEW and not panel.bars:
        axis.set_xticks(places, [f"{place:g}" for place in places])  # type: ignore[attr-defined]
    if len(panel.lines) > 1 or any(line.published for line in panel.lines):
        axis.legend(fontsize=7)  # type: ignore[attr-defined]


def _line(axis: object, line: Line, at: int) -> None:
    style = {
        "color": COLOURS[at % len(COLOURS)],
        "marker": MARKS[at % len(MARKS)],
        "markersize": 4 if len(line.x) <= MANY else 0,
    }
    if line.published:
        style |= {"linestyle": "--", "markerfacecolor": "none"}
    axis.plot(list(line.x), list(line.y), label=_label(line), **style)  # type: ignore[attr-defined]


def _bars(axis: object, lines: Sequence[Line]) -> None:
    """Groups by what stands on the x axis, a bar a line in each."""
    places = list(dict.fromkeys(x for line in lines for x in line.x))
    width = 0.8 / max(len(lines), 1)
    for at, line in enumerate(lines):
        left = [places.index(x) + (at - (len(lines) - 1) / 2) * width for x in line.x]
        style = {"color": COLOURS[at % len(COLOURS)], "edgecolor": COLOURS[at % len(COLOURS)]}
        if line.published:
            style |= {"color": "none", "hatch": "//"}
        axis.bar(left, list(line.y), width, label=_label(line), **style)  # type: ignore[attr-defined]
    axis.set_xticks(range(len(places)), [str(place) for place in places])  # type: ignore[attr-defined]


def _label(line: Line) -> str:
    return f"{line.name} (paper)" if line.published else line.name
