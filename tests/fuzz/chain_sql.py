"""Pieces of chains that are written as SQL text, for `plait.sql`; DuckDB is told the same in its own words (`chain_tables`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.fuzz import chain_functions, chain_tables
from tests.fuzz.chain_tables import quoted

import plait

if TYPE_CHECKING:
    from tests.fuzz.chains import Chain, Node


def _read(chain: Chain, text: str, **nodes: Node) -> Any:
    chain.notes.append(f"sql: {text}")
    streams = {name: each.node for name, each in nodes.items()}
    read = {
        name
        for node in streams.values()
        for name in ([node.name] if isinstance(node, plait.Stream) else node.streams())
    }
    return plait.sql(text, streams=streams, schemas={name: chain.schemas[name] for name in read})


def rows(chain: Chain, node: Node) -> Node | None:
    """SELECT and WHERE of one table."""
    kept, made = chain.selected(node)
    kept = [name for name in kept if name != "ts"]
    given = chain.condition(node)
    if given is None or not (kept or made):
        return None
    items = kept + [f"{text} AS {name}" for name, (text, _) in made.items()]
    columns = {"ts": "time"} if node.is_query else {}
    columns |= {name: node.columns[name] for name in kept} | {name: kind for name, (_, kind) in made.items()}
    query = _read(chain, f"SELECT {', '.join(items)} FROM t WHERE {given}", t=node)
    return chain.made(query, columns, f"{chain.projected(node, columns, made)} where {given}", "sql rows")


def _beside(chain: Chain, node: Node) -> Node | None:
    """What a node may be joined with in SQL: both have a ts that is named."""
    other = chain.other(node)
    return other if "ts" in node.columns and "ts" in other.columns else None


def _names(left: Node, right: Node | None) -> chain_tables.Names:
    found = [(0, name) for name in left.columns if name != "ts"][:3]
    found += [(1, name) for name in (right.columns if right is not None else ()) if name != "ts"][:2]
    return {f"c{n}": each for n, each in enumerate(found)}


def _items(names: chain_tables.Names) -> str:
    return ", ".join(f"{'lr'[side]}.{own} AS {name}" for name, (side, own) in names.items())


def join(chain: Chain, left: Node) -> Node | None:
    chance, right = chain.chance, _beside(chain, left)
    how = chance.choice(("inner", "left", "right", "full", "semi", "anti"))
    names = {} if right is None else _names(left, right if how not in ("semi", "anti") else None)
    if right is None or not names:
        return None
    on = chain.on(left, right)
    before, after = (chance.choice((0, 1, 2, 4)) * chain.step_us for _ in range(2))
    words = {"inner": "JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}.get(how, f"{how.upper()} JOIN")
    bound = f"r.ts BETWEEN l.ts - INTERVAL {before} MICROSECONDS AND l.ts + INTERVAL {after} MICROSECONDS"
    query = _read(
        chain, f"SELECT {_items(names)} FROM x l {words} y r ON {bound}{f' AND ({on})' if on else ''}", x=left, y=right
    )
    fits = f"(r.ts - l.ts between {-before} and {after}) and ({on or 'true'})"
    table = chain_tables.join(left.table, right.table, names, fits, how, before, after)
    return chain.made(query, chain.paired(left, right, names), table, "sql join")


def asof(chain: Chain, left: Node) -> Node | None:
    chance, right = chain.chance, _beside(chain, left)
    if right is None or not (names := _names(left, right)):
        return None
    sign, by = chance.choice((">=", ">", "<=", "<")), chain.by(left, right)
    within = chance.choice((0, 1, 3)) * chain.step_us
    apart = "l.ts - r.ts" if ">" in sign else "r.ts - l.ts"
    on = "".join(f"l.{a} = r.{b} AND " for a, b in by) + f"{apart} <= INTERVAL {within} MICROSECONDS"
    text = f"SELECT {_items(names)} FROM x l ASOF JOIN y r MATCH_CONDITION (l.ts {sign} r.ts) ON {on}"
    query = _read(chain, text, x=left, y=right)
    direction = "backward" if ">" in sign else "forward"
    table = chain_tables.asof(
        left.table, right.table, names, chain.fits(left, right, by), within, "=" in sign, direction, "left"
    )
    return chain.made(query, chain.paired(left, right, names), table, "sql as-of")


def aggregate(chain: Chain, node: Node) -> Node | None:
    chance = chain.chance
    if "ts" not in node.columns:
        return None
    keys = chain.may_be_keys(node)
    by = chance.sample(keys, min(len(keys), chance.choice((0, 1, 1))))
    drawn = {chain.name("f", n): chain_functions.in_sql(chain, node) for n in range(chance.choice((1, 2)))}
    size, advance = (steps * chain.step_us for steps in chance.choice(((1, 1), (3, 2), (2, 2), (2, 3))))
    kind, word = chance.choice((("spans", "window"), ("session", "session_window")))
    span = f", '{advance} microseconds'" if kind == "spans" else ""
    group = ", ".join([f"{word}(ts, '{size} microseconds'{span})", *by])
    having = chance.choice(("", "", " > 1", " <= 2"))
    items = ", ".join([f"{word}.start AS w0", *by, *(f"{spark} AS {name}" for name, (spark, _, _) in drawn.items())])
    text = f"SELECT {items} FROM t GROUP BY {group}{f' HAVING count(*){having}' if having else ''}"
    query = _read(chain, text, t=node)
    kinds = {name: kind for name, (_, _, kind) in drawn.items()}
    columns = {"ts": "time", "w0": "time"} | {name: node.columns[name] for name in by} | kinds
    texts = {name: duck for name, (_, duck, _) in drawn.items()} | {"members": "count(*)"}
    table = chain_tables.windows(node.table, kind, (size, advance), {n: quoted(n) for n in by}, texts)
    names = "".join(f", {quoted(name)}" for name in [*by, *kinds])
    kept = f"select ts, pos, window_start as w0{names} from ({table}) where {f'members{having}' if having else 'true'}"
    return chain.made(query, columns, kept, "sql aggregate")


def union(chain: Chain, node: Node) -> Node | None:
    other = chain.other(node)
    pairs = chain.alike(node, other)
    if pairs is None:
        return None
    texts = [
        f"SELECT {', '.join(f'{p[side]} AS u{n}' for n, p in enumerate(pairs))} FROM {'xy'[side]}" for side in (0, 1)
    ]
    return chain.united(_read(chain, " UNION ALL ".join(texts), x=node, y=other), [(node, 0), (other, 1)], pairs)


PIECES = (rows, join, asof, aggregate, union)
