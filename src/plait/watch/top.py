"""What the page shows, in a terminal: `plait top`. It asks the page's `/now`, so it may run wherever the page can be reached.

What it is given is text from a server that anybody may have put there: names are spelled out again before a terminal has them
(`core.held.printable`), and rich is given no markup.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from plait.core.held import printable
from plait.errors import DataError, QueryError

#: An answer is no longer than this, and no text in it.
MOST_BYTES, MOST_LETTERS = 16 << 20, 2000
_COLORS = {"held": "red", "failed": "red", "flowing": "green", "idle": "green", "ended": "green"}


def watch(url: str, *, once: bool = False, every_s: float = 1.0, console: Console | None = None) -> None:
    """Show a page's run until it ends.

    Args:
        url: Where the page is.
        once: Show how it stands now, and return.
        every_s: How often to ask.
        console: Where to show it. None: standard output.

    Raises:
        DataError: Nothing of plait's answers there.
    """
    console = console or Console()
    now = asked(url)
    if once:
        console.print(shown(now, console.width))
        return
    with Live(shown(now, console.width), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while now["phase"].partition(":")[0] not in ("ended", "failed", "stopped"):
            time.sleep(every_s)
            try:
                now = asked(url)
            except DataError:  # the run has ended, and its page with it
                break
            live.update(shown(now, console.width), refresh=True)
    if console.is_terminal:
        console.print(shown(now, console.width))


def asked(url: str) -> dict[str, Any]:
    """What the page at a place tells now."""
    if not url.startswith(("http://", "https://")):
        url = f"http://{url}"
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/now", timeout=10) as answer:
            found = json.loads(answer.read(MOST_BYTES))
    except (OSError, ValueError, urllib.error.URLError) as error:
        raise DataError(
            f"There is no page at {url}",
            why=str(error),
            do="Name the address that plait run --page, or plait.page, has told",
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("reason"), dict):
        raise QueryError(f"{url} is no page of plait's", do="Name the address that plait run --page has told")
    return found


def shown(now: dict[str, Any], width: int = 100) -> RenderableType:
    """The page's parts, one below the other."""
    reason = now["reason"]
    color = _COLORS.get(reason["kind"], "yellow")
    lines: list[RenderableType] = [Text(_plain(reason["words"]), style=f"bold {color}")]
    for remedy in reason["remedies"]:
        lines.append(Text(_plain(remedy["words"]), style="dim"))
        lines += [Text(f"  {_plain(line)}") for line in str(remedy["copy"]).splitlines()]
    title = Text(f"{_plain(now['title'])} on {_plain(now['executor'])}")
    parts: list[RenderableType] = [
        Panel(Group(*lines), title=title, border_style=color, title_align="left"),
        _numbers(now),
    ]
    if now["sources"]:
        parts.append(_sources(now, width))
    if now["parts"]:
        parts.append(_parts(now, width))
    if now["marks"]:
        last = now["marks"][-3:]
        changes = (f"{_time(each['at'])} UTC  {_plain(each['kind'])}: {_plain(each['words'])}" for each in last)
        parts.append(Text("\n".join(changes), style="dim"))
    return Group(*parts)


def _numbers(now: dict[str, Any]) -> RenderableType:
    history = now.get("history", {})

    def last(name: str) -> Any:
        values = history.get(name) or [None]
        return values[-1]

    told = [
        ("rows", _rate(last("rows_s"))),
        ("results", _rate(last("results_s"))),
        ("frontier", _plain(now["frontier"])),
        ("behind", "–" if last("lag_s") is None else f"{last('lag_s'):,.1f} s"),
        ("waiting", "–" if last("waiting") is None else f"{last('waiting'):,.0f}"),
    ]
    told += [(name, f"{each['p50']:,.1f} ms") for name, each in now["latency"].items() if each["p50"] is not None]
    text = Text()
    for name, value in told:
        text.append(f"{_plain(name)} ", style="dim")
        text.append(f"{value}   ", style="bold")
    return text


def _sources(now: dict[str, Any], width: int) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    for name in ("source", "behind", "progress", "silent"):
        table.add_column(name, header_style="dim", overflow="fold", ratio=3 if name == "source" else 2)
    for name in ("waiting", "rows"):
        table.add_column(name, header_style="dim", justify="right", ratio=2)
    most = max([1e-9, *(each["lag_s"] or 0.0 for each in now["sources"])])
    for each in now["sources"][:20]:
        name = _plain(each["stream"]) + ("" if each["name"] is None else f"/{_plain(each['name'])}")
        marks = [word for word in ("holds", "idle", "ended") if each[word]]
        marks += [f"{each[word]:,} {word}" for word in ("late", "behind") if each[word]]
        style = "bold red" if each["holds"] and now["reason"]["kind"] == "held" else "bold" if each["holds"] else ""
        full = 1.0 if each["lag_s"] is None and not each["ended"] else (each["lag_s"] or 0.0) / most
        table.add_row(
            Text(f"{name}{' (' + ', '.join(marks) + ')' if marks else ''}", style=style),
            Text(_bar(full, max(6, width // 8)), style="red" if style == "bold red" else "blue"),
            Text(_plain(each["progress"])), Text("–" if each["ended"] else _plain(each["silent"])),
            Text("–" if each["waiting"] is None else f"{each['waiting']:,}"), Text(f"{each['rows']:,}"),
        )  # fmt: skip
    return table


def _parts(now: dict[str, Any], width: int) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    kind = _plain(now["parts"][0]["kind"])
    for name, ratio in ((kind, 2), ("busy", 4), ("", 2), ("rows", 2), ("share", 1)):
        table.add_column(
            name, header_style="dim", ratio=ratio, justify="right" if name in ("rows", "share") else "left"
        )
    most: dict[int, float] = {}
    for each in now["parts"]:
        most[each["operator"]] = max(most.get(each["operator"], 1e-9), each["busy_s"])
    for each in now["parts"][:24]:
        full = each["busy_s"] / most[each["operator"]]
        table.add_row(
            Text(f"operator {each['operator']}, {each['part']}"), Text(_bar(full, max(8, width // 4)), style="blue"),
            Text(f"{each['busy_s']:,.1f} s"), Text(f"{each['rows']:,}"), Text(f"{each['share']:.0%}"),
        )  # fmt: skip
    return table


def _bar(full: float, width: int) -> str:
    return "█" * max(0, min(width, round(full * width)))


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}/s"


def _time(at: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(at))


def _plain(value: Any) -> str:
    return printable(value, MOST_LETTERS)
