"""Aggregate functions of chains: plait's, and the same in DuckDB's words, which docs/semantics.md says and not plait's code."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import plait

if TYPE_CHECKING:
    from tests.fuzz.chains import Chain, Node

NUMBERS = ("int64", "int32", "int8")


def _listed(value: str, order: str, where: str) -> str:
    return f"list({value} order by {order}) filter (where {where})"


def drawn(chain: Chain, node: Node) -> tuple[Any, str, str]:
    """A function, its text in DuckDB over a window's rows, and the type of its results."""
    chance = chain.chance
    given = chain.condition(node) if chance.random() < 0.35 else None
    sees = {} if given is None else {"where": given}
    where = given or "true"
    numbers = node.of(*NUMBERS)
    any_column = [name for name, kind in node.columns.items() if kind in (*NUMBERS, "string", "bool")]
    if not numbers or not any_column or chance.random() < 0.1:
        return plait.count(**sees), f"count(*) filter (where {where})", "int64"
    value = chance.choice(numbers)
    kind = node.columns[value]
    text = f'"{value}"'
    if chance.random() < 0.3:
        other = chance.choice(numbers)
        value, text, kind = (f"{value} - 2 * {other}",) * 2 + ("int64",)
    column, by = chance.choice(any_column), chance.choice(numbers)
    own = node.columns[column]
    quoted, ordered = f'"{column}"', f'"{by}"'
    present = f"({where}) and {text} is not null"
    n = f"count({text}) filter (where {where})"
    q = chance.choice((0, 0.1, 0.25, 0.5, 0.9, 1))
    part = Fraction(repr(float(q)))
    k = chance.choice((1, 2, 50))
    ranked = f"({where}) and {ordered} is not null"
    total, total_square = (f"(sum({each}) filter (where {where}))" for each in (text, f"({text})::hugeint * ({text})"))
    squares = f"({n} * {total_square} - {total} * {total})::double / nullif({n} * ({n} - 1), 0)::double"
    ranks = f"({_listed(text, text, present)})"
    return chance.choice((
        (plait.sum(value, **sees), f"sum({text}) filter (where {where})", "int64"),
        (plait.min(value, **sees), f"min({text}) filter (where {where})", kind),
        (plait.max(value, **sees), f"max({text}) filter (where {where})", kind),
        (plait.mean(value, **sees), f"(sum({text}) filter (where {where}))::double / ({n})::double", "float64"),
        (plait.var(value, **sees), squares, "float64"),
        (plait.first(column, **sees), f"({_listed(quoted, 'pos', where)})[1]", own),
        (plait.last(column, **sees), f"({_listed(quoted, 'pos desc', where)})[1]", own),
        (plait.collect(column, **sees), f"coalesce({_listed(quoted, 'pos', where)}, [])", "list"),
        (plait.distinct(column, **sees), f"count(distinct {quoted}) filter (where {where})", "int64"),
        (plait.median(value, **sees), f"({ranks}[({n} + 1) // 2] + {ranks}[({n} + 2) // 2])::double / 2", "float64"),
        (plait.quantile(value, q, **sees),
         f"{ranks}[greatest(1, ({n} * {part.numerator} + {part.denominator - 1}) // {part.denominator})]", kind),
        (plait.arg_max(column, by, **sees), f"({_listed(quoted, f'{ordered} desc, pos', ranked)})[1]", own),
        (plait.arg_min(column, by, **sees), f"({_listed(quoted, f'{ordered}, pos', ranked)})[1]", own),
        (plait.top(column, k, by, **sees), f"coalesce(({_listed(quoted, f'{ordered} desc, pos', ranked)})[1:{k}], [])", "list"),
    ))  # fmt: skip


def in_sql(chain: Chain, node: Node) -> tuple[str, str, str]:
    """A function in Spark's words and in DuckDB's, and the type of its results."""
    chance = chain.chance
    given = chain.condition(node) if chance.random() < 0.35 else None
    only, where = ("", "true") if given is None else (f" FILTER (WHERE {given})", given)
    numbers = node.of(*NUMBERS)
    if not numbers or chance.random() < 0.2:
        return f"count(*){only}", f"count(*) filter (where {where})", "int64"
    a, b = chance.choice(numbers), chance.choice(numbers)
    kind = node.columns[a]
    ranked = f'({where}) and "{b}" is not null'
    return chance.choice((
        (f"count({a}){only}", f"count({a}) filter (where {where})", "int64"),
        (f"count(DISTINCT {a}){only}", f"count(distinct {a}) filter (where {where})", "int64"),
        (f"sum({a} + {b}){only}", f"sum({a} + {b}) filter (where {where})", "int64"),
        (f"min({a}){only}", f"min({a}) filter (where {where})", kind),
        (f"max({a} - {b}){only}", f"max({a} - {b}) filter (where {where})", "int64"),
        (f"avg({a}){only}", f"(sum({a}) filter (where {where}))::double / count({a}) filter (where {where})", "float64"),
        (f"first({a}){only}", f"({_listed(a, 'pos', where)})[1]", kind),
        (f"last({a}){only}", f"({_listed(a, 'pos desc', where)})[1]", kind),
        (f"max_by({a}, {b}){only}", f"({_listed(a, f'{b} desc, pos', ranked)})[1]", kind),
        (f"collect_list({a}){only}", f"coalesce({_listed(a, 'pos', f'({where}) and {a} is not null')}, [])", "list"),
        (f"sum({a}){only} - count(*)", f"sum({a}) filter (where {where}) - count(*)", "int64"),
    ))  # fmt: skip
