"""The report's page: one HTML file with everything in it, that loads nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from plait_bench.papers.drawing import svg
from plait_bench.papers.study import PAPERS, Outcome

STYLE = """
:root { color-scheme: light dark; --line: #8886; --good: #1a7f37; --bad: #cf222e; --dim: #57606a; }
@media (prefers-color-scheme: dark) { :root { --good: #3fb950; --bad: #f85149; --dim: #9aa4ae; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; } h3 { margin-top: 2.2rem; }
figure { margin: 1rem 0; background: #fff; border-radius: 6px; overflow-x: auto; } figure svg { max-width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .85rem; }
td, th { padding: .15rem .6rem; border: 1px solid var(--line); text-align: left; }
.wide { overflow-x: auto; } .dim { color: var(--dim); } code { font-size: .9em; }
.holds { color: var(--good); } .fails { color: var(--bad); font-weight: 600; } .explained, .not { color: var(--dim); }
summary { cursor: pointer; color: var(--dim); }
"""
COUNTED = {
    "holds": "hold",
    "fails": "do not hold",
    "explained": "differ, with the reason",
    "not judged": "are not judged here",
}
WORDS = {"holds": "holds", "fails": "does not hold", "explained": "differs, explained", "not judged": "not judged here"}


def write(path: Path, outcomes: Sequence[Outcome]) -> None:
    path.write_text(page(outcomes))


def page(outcomes: Sequence[Outcome]) -> str:
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>plait: the papers' figures</title><style>{STYLE}</style>",
        "<h1>The papers' figures, measured with plait</h1>", _opening(outcomes), _contents(outcomes),
    ]  # fmt: skip
    for paper, title in PAPERS.items():
        own = [each for each in outcomes if each.paper == paper]
        if own:
            parts.append(f"<h2 id={paper}>{escape(title)}</h2>")
            parts += [_study(each) for each in own]
    return "\n".join(parts) + "\n"


def _opening(outcomes: Sequence[Outcome]) -> str:
    verdicts = [verdict for each in outcomes for verdict in each.verdicts]
    counts = ", ".join(f"{verdicts.count(v)} {COUNTED[v]}" for v in COUNTED if v in verdicts)
    sizes = ", ".join(dict.fromkeys(each.size for each in outcomes))
    facts = dict(outcomes[0].machine) if outcomes else {}
    loads = [each.machine["load"] for each in outcomes if each.machine.get("load") is not None]
    if loads:
        facts["load"] = f"{min(loads)} to {max(loads)}"
    return (
        f"<p>{len(outcomes)} figures and tables, {sizes} size, {sum(e.seconds for e in outcomes) / 60:.0f} minutes. "
        f"Shapes that the papers claim: {counts}.</p>"
        "<p class=dim>Full lines were measured here; dashed lines with hollow marks are points that the papers' texts give. "
        "Absolute figures are a machine's; what is checked is the shape. «Not judged here»: it takes more cores or more time "
        f"than this run had.</p>{_table([facts])}<p>Made by <code>{escape(_command(outcomes))}</code></p>"
    )


def _contents(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for each in outcomes:
        marks = " ".join(f"<span class='{v.split()[0]}'>{WORDS[v]}</span>" for v in dict.fromkeys(each.verdicts))
        rows.append(
            f"<tr><td><a href='#{each.name}'>{escape(PAPERS[each.paper])}, {escape(each.label)}</a>"
            f"<td>{escape(each.title)}<td>{marks}"
        )
    return f"<div class=wide><table><tr><th>figure<th>what it shows<th>shapes{''.join(rows)}</table></div>"


def _study(each: Outcome) -> str:
    found = each.found
    claims = "".join(
        f"<li><span class='{verdict.split()[0]}'>{WORDS[verdict]}</span>: {escape(claim.says)} "
        f"<span class=dim>({escape(claim.shown)})</span>{_instead(claim.instead, verdict)}"
        for claim, verdict in zip(found.claims, each.verdicts, strict=True)
    )
    return "\n".join([
        f"<h3 id={each.name}>{escape(each.label.capitalize())}: {escape(each.title)}</h3>",
        f"<p>{escape(found.sentence)}</p>",
        f"<figure>{svg(found.panels)}</figure>" if found.panels else "",
        f"<ul>{claims}</ul>",
        f"<p class=dim>In the paper: {escape(each.published)}</p>" if each.published else "",
        f"<p class=dim>Different here: {escape(found.departs)}</p>" if found.departs else "",
        f"<details><summary>{len(found.rows)} rows of data; {each.seconds:.1f} s"
        f"{f', measured {each.tries} times' if each.tries > 1 else ''}; "
        f"<code>plait bench papers --only {each.name}</code></summary>",
        f"{_table(found.rows)}</details>",
    ])  # fmt: skip


def _instead(words: str, verdict: str) -> str:
    return f". {escape(words)}" if verdict == "explained" else ""


def _command(outcomes: Sequence[Outcome]) -> str:
    size = outcomes[0].size if outcomes else "usual"
    return "plait bench papers" + ("" if size == "usual" else f" --{size}")


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    head = "".join(f"<th>{escape(str(column))}" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{escape(_cell(row.get(column)))}" for column in columns) for row in rows)
    return f"<div class=wide><table><tr>{head}{body}</table></div>"


def _cell(value: Any) -> str:
    from plait_bench import cell

    return cell(value)
