"""What each piece of a chain means, as DuckDB's SQL: written from docs/semantics.md.

Every table has `ts`, `pos` (its place in its own order) and its columns. DuckDB knows no order of its own, so each of these says
by what rows are ordered: (ts, input, pos) of the tuples that made them.
"""

from __future__ import annotations

#: Of a join's columns: the side that each is of, and its name there.
Names = dict[str, tuple[int, str]]


def quoted(name: str) -> str:
    return f'"{name}"'


def _places(order: str) -> str:
    return f"row_number() over (order by {order}) as pos"


# --- union and dedup ----------------------------------------------------------------------------------------


def union(parts: list[tuple[str, list[str]]]) -> str:
    """Tables with the columns of each: they become u0, u1, ..."""
    selects = [
        f"select ts, {at} as input, pos, {', '.join(f'{quoted(name)} as u{n}' for n, name in enumerate(names))} from {table}"
        for at, (table, names) in enumerate(parts)
    ]
    columns = ", ".join(f"u{n}" for n in range(len(parts[0][1])))
    return f"select ts, {_places('ts, input, pos')}, {columns} from ({' union all '.join(selects)})"


def dedup(table: str, by: list[str], within: int) -> str:
    """Of each key its first row, then again and again the first that lies further than the span behind the last one."""
    names, others = ", ".join(map(quoted, by)), ", ".join(f"t.{quoted(c)}" for c in by)
    same = " and ".join(f"t.{quoted(c)} is not distinct from kept.{quoted(c)}" for c in by)
    first = f"select {names}, pos, ts from {table} qualify row_number() over (partition by {names} order by pos) = 1"
    later = (
        f"select {others}, t.pos, t.ts, row_number() over (partition by kept.pos order by t.pos) as turn "
        f"from kept join {table} t on {same} and t.ts > kept.ts + {within}"
    )
    return (
        f"with recursive kept as ({first} union all select {names}, pos, ts from ({later}) where turn = 1) "
        f"select * from {table} where pos in (select pos from kept)"
    )


# --- joins --------------------------------------------------------------------------------------------------


def same_window(size: int) -> str:
    """Both tuples fall into the same `[k*size, (k+1)*size)`."""
    return " = ".join(f"({side}.ts - (({side}.ts % {size} + {size}) % {size}))" for side in "lr")


def last_tuples(left: str, right: str, count: int, *, tumbling: bool) -> str:
    """The earlier tuple is among the last so many of its stream before the later one; or in the window that the last one is in.

    At one ts the left tuple is the earlier one. `before`: how many of its stream come before the later tuple.
    """
    before = [f"(select count(*) from {left} x where (x.ts, 0, x.pos) < (r.ts, 1, r.pos))",
              f"(select count(*) from {right} x where (x.ts, 1, x.pos) < (l.ts, 0, l.pos))"]  # fmt: skip
    rank = [f"(select count(*) from {table} x where x.pos < {side}.pos)" for table, side in ((left, "l"), (right, "r"))]
    fits = [f"{b} - {r} <= {count}" for b, r in zip(before, rank, strict=True)]
    if tumbling:
        fits = [f"({b} - 1) // {count} = {r} // {count}" for b, r in zip(before, rank, strict=True)]
    return f"case when l.ts <= r.ts then {fits[0]} else {fits[1]} end"


def join(left: str, right: str, names: Names, fits: str, how: str, before: int, after: int) -> str:
    """Pairs by trigger, then partner; rows without a partner after the others at their ts, left ones first."""
    later = "(l.ts, 0, l.pos) > (r.ts, 1, r.pos)"
    keys = (
        f"case when {later} then 0 else 1 end as ti, case when {later} then l.pos else r.pos end as tp, "
        f"case when {later} then r.ts else l.ts end as ets, case when {later} then r.pos else l.pos end as ep"
    )
    pairs = (
        f"select greatest(l.ts, r.ts) as ts, 0 as lone, {keys}, l.pos as lp{_shown(names, 'lr')} "
        f"from {left} l join {right} r on {fits}"
    )
    alone = (
        f"select l.ts + {after} as ts, 1 as lone, 0 as ti, l.pos as tp, 0 as ets, 0 as ep, l.pos as lp{_shown(names, 'l')} "
        f"from {left} l where not exists (select 1 from {right} r where {fits})"
    )
    others = (
        f"select r.ts + {before} as ts, 2 as lone, 0 as ti, r.pos as tp, 0 as ets, 0 as ep, 0 as lp{_shown(names, 'r')} "
        f"from {right} r where not exists (select 1 from {left} l where {fits})"
    )
    first = f"select * from ({pairs}) qualify row_number() over (partition by lp order by ts, ti, tp, ets, ep) = 1"
    parts = {"inner": [pairs], "left": [pairs, alone], "right": [pairs, others], "full": [pairs, alone, others],
             "semi": [first], "anti": [alone]}[how]  # fmt: skip
    every = "".join(f", {quoted(name)}" for name in names)
    return f"select ts, {_places('ts, lone, ti, tp, ets, ep')}{every} from ({' union all '.join(parts)})"


def _shown(names: Names, sides: str) -> str:
    """A join's columns of a row in which only these sides stand."""
    of = [(name, "lr"[side], own) for name, (side, own) in names.items()]
    return "".join(
        f", {f'{side}.{quoted(own)}' if side in sides else 'null'} as {quoted(name)}" for name, side, own in of
    )


def asof(left: str, right: str, names: Names, fits: list[str], within: int | None, exact: bool, direction: str,
         how: str) -> str:  # fmt: skip
    """One partner for each left row, at the moment at which it is decided; `fits` is what else it takes."""
    fits = fits + ([] if within is None else [f"abs(l.ts - r.ts) <= {within}"])
    fits += {"backward": [f"r.ts <{'=' * exact} l.ts"], "forward": [f"r.ts >{'=' * exact} l.ts"],
             "nearest": [] if exact else ["r.ts <> l.ts"]}[direction]  # fmt: skip
    # At l's own ts the last one lies behind; behind goes before ahead at one distance.
    near = "abs(l.ts - r.ts), r.ts > l.ts, case when r.ts <= l.ts then -r.pos else r.pos end"
    order = {"backward": "r.ts desc, r.pos desc", "forward": "r.ts, r.pos", "nearest": near}[direction]
    moment = {"backward": "l.ts", "forward": f"coalesce(r.ts, l.ts + {within})",
              "nearest": f"coalesce(l.ts + abs(l.ts - r.ts), l.ts + {within})"}[direction]  # fmt: skip
    found = (
        f"select {moment} as ts, l.ts as lts, l.pos as lp{_shown(names, 'lr')}, "
        f"row_number() over (partition by l.pos order by {order}) as turn "
        f"from {left} l {'left join' if how == 'left' else 'join'} {right} r on {' and '.join(fits) or 'true'}"
    )
    every = "".join(f", {quoted(name)}" for name in names)
    return f"select ts, {_places('ts, lts, lp')}{every} from ({found}) where turn = 1"


# --- aggregates ---------------------------------------------------------------------------------------------


def windows(table: str, kind: str, width: tuple[int, int], keys: dict[str, str], items: dict[str, str]) -> str:
    """Rows of an aggregate: windows by the definition, then groups of them. `items` are its functions, by name."""
    size, advance = width
    by = [quoted(f"by_{name}") for name in keys]
    keyed = (
        f"(select *{''.join(f', {text} as {name}' for name, text in zip(by, keys.values(), strict=True))} from {table})"
    )
    partition = f"partition by {', '.join(by)}" if by else ""
    rows, group, ts, order, edges = {"spans": _spans, "session": _sessions, "tuples": _tuples}[kind](
        table, keyed, partition, size, advance
    )
    grouped = (
        f"select {ts} as the_ts, {order} as the_order, {edges}{''.join(f', {name}' for name in by)}"
        f"{''.join(f', {text} as {name}' for name, text in items.items())} from {rows} "
        f"group by {', '.join([group, *by])}{f' having count(*) = {size}' if kind == 'tuples' else ''}"
    )
    places = ", ".join(["the_ts", "the_order", *(f"{name} nulls last" for name in by)])
    named = "".join(f", {made} as {quoted(name)}" for made, name in zip(by, keys, strict=True))
    return (
        f"select the_ts as ts, {_places(places)}, window_start, window_end{named}{''.join(f', {name}' for name in items)} "
        f"from ({grouped})"
    )


#: The rows with their window, what groups them, a window's ts, what orders windows at one ts, and its edges.
Windows = tuple[str, str, str, str, str]


def _spans(table: str, keyed: str, partition: str, size: int, advance: int) -> Windows:
    back = f"(select unnest(generate_series(0, {(size + advance - 1) // advance})) as _back)"
    start = f"ts - ((ts % {advance} + {advance}) % {advance}) - _back * {advance}"
    rows = f"(select x.*, {start} as _start, _start + {size} as _end from {keyed} x, {back} where ts >= _start and ts < _end)"
    return rows, "_start", "any_value(_end) - 1", "0", "_start as window_start, any_value(_end) as window_end"


def _sessions(table: str, keyed: str, partition: str, size: int, advance: int) -> Windows:
    begins = f"case when ts < lag(ts) over ({partition} order by pos) + {size} then 0 else 1 end"
    marked = f"(select *, {begins} as _begins from {keyed})"
    rows = f"(select *, sum(_begins) over ({partition} order by pos) as _session from {marked})"
    return rows, "_session", f"max(ts) + {size} - 1", "0", f"min(ts) as window_start, max(ts) + {size} as window_end"


def _tuples(table: str, keyed: str, partition: str, size: int, advance: int) -> Windows:
    ranked = f"(select *, row_number() over ({partition} order by pos) - 1 as _place from {keyed})"
    starts = f"(select unnest(generate_series(0, (select count(*) from {table}))) * {advance} as _start)"
    rows = f"(select * from {ranked}, {starts} where _place >= _start and _place < _start + {size})"
    return rows, "_start", "max(ts)", "max(pos)", f"_start as window_start, _start + {size} as window_end"
