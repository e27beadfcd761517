"""Which strategy each operator of a query comes to, by the options it was given; and what is said of it.

Nothing here runs or allocates. `on_threads(...)` makes the plan at once and `Run.explain()` tells it, so a user sees
what will happen before the first push. An example: an inner join with workers=4 and no strategy. `choice.strategy`
says scalejoin, and why; `scalejoin.plan` gives four seats; `Plan.check` tries that every pair is compared once; both
reasons stand in `why`.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import Any

from plait.core.aggregate.panes import window_record
from plait.core.calibration import kept
from plait.core.condition.terms import shares_line
from plait.errors import QueryError, counted
from plait.query.aggregate import Aggregate
from plait.query.base import Node, Query
from plait.query.dedup import Dedup
from plait.query.join import Asof, Join
from plait.query.operator import Operator
from plait.query.row_by_row import Union, base
from plait.query.stream import Stream
from plait.threads.aggregate import designs
from plait.threads.join import asof
from plait.threads.join.loop.gather import NEVER, STRICT
from plait.threads.join.strategies import choice as model
from plait.threads.join.strategies import dpjoin, registry, scalejoin
from plait.threads.join.strategies.plan import Plan, Wish
from plait.threads.options import Options


@dataclass(frozen=True)
class Step:
    """One operator of a query: how it is run.

    `options` are the operator's own: of a larger query's options those that it has.
    """

    query: Query
    options: Options
    plan: Plan | designs.Design | Sharing


def steps(query: Query, options: Options) -> list[Step]:
    """Every operator of a query, inputs before users; the very same query used twice is computed once.

    Inside, results are in strict order. Options hold for the operators that have them: a strategy of joins for joins.

    Operators are told apart by identity: one query object that is used twice is one step; two equal ones are two. With
    `keys`, an operator whose key is made of its inputs' keys asks for theirs as well; a window of time has a key of
    its own, and asks for none.
    """
    nodes: list[Query] = []
    asked, query = query, _operator(query)
    if options.marks and asked is not query:
        raise QueryError(
            "marks=True for a query whose rows are changed one by one",
            why="marks stand among a join's results, and are no rows",
            do="Leave it out",
        )
    _collect(query, nodes)
    if len(nodes) == 1:
        return [Step(query, options, plan(query, options))]
    joins = [node for node in nodes if isinstance(node, Join)]
    ruled = {"auto": nodes, **dict.fromkeys(registry.names(), joins)}.get(
        options.strategy, [node for node in nodes if isinstance(node, Aggregate)]
    )
    if not ruled or (not joins and _given(**_of_joins(options))):
        raise QueryError(
            f"{_given(strategy=options.strategy, **_of_joins(options))} for a query of "
            f"{' and '.join(sorted({type(node).__name__ for node in nodes}))}",
            why="no operator of it has such an option",
            do="Leave it out",
        )
    keyed = {id(query)} if options.keys else set()
    made: list[Step] = []
    for node in reversed(nodes):
        own = _own(node, options, crew=max(1, _default(options) // max(1, len(joins))))
        if node is not query:
            own = replace(own, order="strict", punctuate="order", marks=False, keys=id(node) in keyed)
        elif options.marks and not isinstance(node, Join):
            raise QueryError(
                f"marks=True for a query whose results are those of {labelled(node)!r}",
                why="marks stand among a join's results, and no other operator passes them on",
                do="Leave it out",
            )
        if own.keys and not (isinstance(node, Aggregate) and window_record(node).by_time):
            keyed |= {id(base(child)) for child in node.inputs}  # their keys are part of its own
        made.append(Step(node, own, plan(node, own)))
    return made[::-1]


def _operator(query: Query) -> Query:
    """The operator that gives a query's rows, which is `rooted` by now."""
    found = base(query)
    assert isinstance(found, Query)
    return found


def labelled(query: Node) -> str:
    """An operator in messages: its name, or what it is."""
    return query.name or type(query).__name__.lower()


def _given(**options: Any) -> str:
    """Those of these options that somebody asked for, as they were written."""
    return ", ".join(f"{name}={value!r}" for name, value in options.items() if value not in ("auto", False))


def _of_joins(options: Options) -> dict[str, Any]:
    """The options that only joins have."""
    return {"index": options.index, "layout": options.layout, "emitter": options.emitter}


def described(plans: list[tuple[str, Plan | designs.Design | Sharing]]) -> list[str]:
    """A line an operator: which strategy, how many workers, why."""
    several = len(plans) > 1
    lines = []
    for label, made in plans:
        what = f"{label}: " if several else ""
        lines.append(f"on threads: {what}{made.strategy}, {counted(len(made.seats), 'worker')}: {made.why}")
    return lines


#: Of each gate that carries runs, how sources meet there.
GATE_WORDS = {"ring": "rings, which every reader merges for itself", "skiplist": "one skip list, into which they sort"}


def gate_described(query: Query, gate: str, plans: list[AnyPlan]) -> list[str]:
    """Which gate carries the run, and why; nothing where no tuple goes through one that was chosen here.

    On a machine that is calibrated: what a tuple takes on either gate, for as many sources as the query's streams declare and as
    many readers as the operator that has most.
    """
    if all(isinstance(made, designs.Design) and (made.merges_windows or made.gate is not None) for made in plans):
        return []
    name = "ring" if gate == "auto" else gate
    why = "as asked for"
    if gate == "auto":
        why = "in batches up to 3.8 times as much goes through them as through the skip list, and no less (plait bench gate)"
    machine = kept()
    if machine is not None:
        sources = sum(
            1 if (known := each.declared()) is None else max(1, len(known)) for each in query.streams().values()
        )
        readers = max(1 if isinstance(made, Plan) and made.tree else len(made.seats) for made in plans)
        took = {each: model.through_gate(machine.costs, each, sources, readers) for each in GATE_WORDS}
        own, other = took.pop(name), next(iter(took.values()))
        found = f"{counted(sources, 'source')} and {counted(readers, 'reader')}"
        why += f"; with {found} a tuple takes {own} there, and {other} on the other gate ({machine.told})"
    return [f"on threads: sources meet in {GATE_WORDS[name]}: {why}"]


def _collect(query: Query, nodes: list[Query]) -> None:
    """All operators below and including this one into `nodes`, inputs first, each object once."""
    for child in map(base, query.inputs):
        if isinstance(child, Query):
            _collect(child, nodes)
    if not any(node is query for node in nodes):
        nodes.append(query)


def _own(node: Query, options: Options, crew: int) -> Options:
    """What of the options an operator inside a larger query has; workers, if no number is given, share the cores.

    `crew`: workers for a join where the user has not said how many, the cores divided by the number of joins. A
    strategy for joins is dropped for other operators, and the other way round; TuML-MC for an aggregate that has no
    groups.
    """
    if isinstance(node, Union):
        return of_union(options)
    if options.elastic is not None:
        options = _own_elastic(node, options, options.elastic)
        crew = min(crew, options.elastic or crew)
    if isinstance(node, Join):
        strategy = options.strategy if options.strategy in registry.names() else "auto"
        shared = options.workers is None and options.layout == "auto"
        own = options if _punctuates(strategy) else _without_punctuation(options)
        return replace(own, strategy=strategy, workers=crew if shared else options.workers)
    strategy = options.strategy if isinstance(node, Aggregate) and options.strategy not in registry.names() else "auto"
    if strategy == "tuml_mc" and isinstance(node, Aggregate) and not node.by:
        strategy = "auto"
    return replace(_without_punctuation(options), strategy=strategy, index="auto", layout="auto", emitter=False)


def of_union(options: Options) -> Options:
    """What a union has of a larger query's options: one thread, and nothing that joins, aggregates or elastic runs have."""
    plain = replace(_without_punctuation(options), strategy="auto", index="auto", layout="auto", emitter=False)
    return replace(plain, workers=None, elastic=None, policy=None)


def _without_punctuation(options: Options) -> Options:
    """What SplitJoin alone has is left out."""
    return replace(options, punctuate="order", marks=False, fan_in=None, split_storing=False)


def _own_elastic(node: Query, options: Options, shares: int) -> Options:
    """An operator with few buckets has no more shares than these."""
    if isinstance(node, Operator):
        shares = min(shares, node.buckets)
    workers = None if options.workers is None else min(options.workers, shares)
    return replace(options, workers=workers, elastic=shares)


@dataclass(frozen=True)
class Sharing:
    """How a user's operator or a dedup runs: into how many shares its buckets or keys are split, and how many threads serve them
    at first.

    `shares` never changes in a run; `workers` is how many threads serve them at the beginning. `seats` are numbers of
    shares, as a plan's are of workers.
    """

    shares: int
    workers: int
    why: str
    strategy: str = "operator"

    @property
    def seats(self) -> tuple[int, ...]:
        return tuple(range(self.shares))


#: How an operator is run: of a join, of an aggregate, of a user's operator or a dedup.
AnyPlan = Plan | designs.Design | Sharing


def _sharing(query: Operator, options: Options) -> Sharing:
    """How an operator's buckets are split. Options of joins and aggregates are refused, not ignored."""
    _refuse_strategies(options, "an operator")
    workers = options.workers or 1
    shares = options.elastic or min(workers, query.buckets)
    if shares > query.buckets:
        raise QueryError(
            f"elastic={shares} for an operator of {query.buckets} buckets",
            why="a bucket is served by one thread at a time, so more shares than buckets would be empty",
            do="Raise buckets=, or lower elastic=",
        )
    served = f"served by {counted(min(workers, shares), 'thread')}"
    why = f"{counted(query.buckets, 'bucket')} in {counted(shares, 'share')}, {served}"
    return Sharing(shares, min(workers, shares), why)


def _in_order(query: Union, options: Options) -> Sharing:
    """A union has one thread, however many workers there may be. Options of joins and of elastic runs are refused."""
    given = _given(strategy=options.strategy, elastic=options.elastic or "auto", **_of_joins(options))
    if given:
        raise QueryError(f"{given} for a union", why="one thread gives its rows out in order", do="Leave it out")
    return Sharing(1, 1, f"rows of {counted(len(query.nodes), 'input')} in one order", "union")


def _sharing_of_keys(options: Options) -> Sharing:
    """How a dedup's keys are split. One thread, where nobody has said how many: a tuple costs a look-up, and less than its
    push.
    """
    _refuse_strategies(options, "a dedup")
    workers = options.workers or 1
    shares = options.elastic or workers
    served = f"served by {counted(min(workers, shares), 'thread')}"
    return Sharing(shares, min(workers, shares), f"keys by hash in {counted(shares, 'share')}, {served}", "dedup")


def _refuse_strategies(options: Options, what: str) -> None:
    if given := _given(strategy=options.strategy, **_of_joins(options)):
        raise QueryError(
            f"{given} for {what}",
            why="these are options of joins and aggregates",
            do="Leave them out",
        )


def plan(query: Query, options: Options) -> AnyPlan:
    """The strategy, chosen and laid out; `why` says what decided.

    Called by `steps` for each operator, and for an aggregate once more when its columns are known (`dag`).
    """
    _check_elastic(options)
    if isinstance(query, Union):
        return _in_order(query, options)
    if isinstance(query, Operator):
        return _sharing(query, options)
    if isinstance(query, Dedup):
        return _sharing_of_keys(options)
    if isinstance(query, Aggregate):
        if given := _given(**_of_joins(options)):
            raise QueryError(
                f"{given} for an aggregate",
                why="these are options of joins",
                do="Leave them out",
            )
        schema = None
        if isinstance(query.input, Stream):
            schema = (options.schemas or {}).get(query.input.name) or query.input.schema
            read = {name for _, function in query.compute for name in function.columns}
            if schema is not None and read - set(schema.names):
                schema = None  # a column is an expression, which has a type once the input's columns are known
        found = _elastic_aggregate(query, options)
        return found or designs.design(query, options.strategy, options.workers, schema)
    if options.strategy in designs.names():
        raise QueryError(
            f"strategy={options.strategy!r} for a join",
            why="it is one for aggregates",
            do=f"Use one of {', '.join(map(repr, ('auto', *registry.names())))}",
        )
    kind = query.how if isinstance(query, Join) else "asof"
    if options.elastic is not None:
        return _elastic_join(query, kind, options)
    # Of a tuple an as-of join's worker does less than the thread that pushes it, and every worker sees all right ones.
    one = options.strategy == "sequential" or kind == "asof"
    workers = options.workers or (model.workers_for(options.layout) or 1 if one else _default(options))
    machine = kept()
    meets = model.meets(query.window, options.rates) if machine is not None and isinstance(query, Join) else None
    advice = ""
    if machine is not None and meets is not None and _may_choose_workers(kind, options):
        workers, advice = model.crew(workers, _sources(query), options.rates, meets, machine)
    costs = None if machine is None else machine.costs
    wish = Wish(
        workers, kind, layout=options.layout, fan_out=options.fan_out, fan_in=options.fan_in,
        split_storing=options.split_storing, emitter=options.emitter, line=_line(query, options), rates=options.rates,
        meets=meets, costs=costs,
    )  # fmt: skip
    name, why = options.strategy, ""
    if name == "auto" and kind != "asof":
        name, why = model.strategy(wish)
        why = f"{advice}; {why}" if advice else why
    if kind == "asof":
        if options.emitter:
            raise QueryError(
                "emitter=True for an as-of join",
                why="its workers share left tuples among them, and each sees every right one: there are no rows and columns",
                do="Leave emitter= out",
            )
        if name == "partitioned" and wish.line is None:
            raise QueryError(
                "strategy='partitioned' for an as-of join without by=",
                why="values are shared among workers, and there are none",
                do="Leave strategy= out",
            )
        if name not in ("auto", "dpjoin", "asof", "partitioned"):
            raise QueryError(
                f"strategy={name!r} for an as-of join",
                why="values are shared among workers, or left tuples, each worker keeping the last right ones: layout m x 1",
                do="Leave strategy= out",
            )
        made = asof.plan(wish if name in ("auto", "partitioned") else replace(wish, line=None))
    else:
        chosen = registry.strategy(name)
        chosen.check(query, options.order, options.index)
        made = chosen.plan(wish)
    made.check()
    said = (why, made.why, _ordered(options))
    return replace(made, why="; ".join(part for part in said if part))


def _ordered(options: Options) -> str:
    """How exactly SplitJoin's results are ordered, where somebody asked for it in its words."""
    if options.punctuate == "order" and not options.marks:
        return ""
    every, comparisons = options.precision()
    if every == NEVER:
        return "results as they come"
    if every == STRICT:
        told = "results in full order"
    elif comparisons:
        told = f"results in order of triggers, of each one's partners every {comparisons} of a sub-window"
    else:
        told = "results in order of triggers" if every == 1 else f"results in order every {every} triggers"
    return told + ", with marks" * options.marks


def _may_choose_workers(kind: str, options: Options) -> bool:
    """Whether nobody has said how many workers an inner join has, in any way."""
    return (
        kind == "inner"
        and options.workers is None
        and options.layout == options.strategy == "auto"
        and not options.emitter
    )


def _sources(query: Query) -> int:
    """How many sources can be pushed at once: the declared ones; of an input that declares none, one."""
    declared = (child.declared() if isinstance(child, Stream) else None for child in query.inputs)
    return sum(1 if each is None else max(1, len(each)) for each in declared)


def _elastic_aggregate(query: Aggregate, options: Options) -> designs.Design | None:
    """The design of an aggregate with elastic=; None where that was not said.

    Without groups all state is one share: it can move between threads, and can't be split.
    """
    if options.elastic is None:
        return None
    if options.strategy not in ("auto", "tuml_mc"):
        raise QueryError(
            f"elastic={options.elastic} with strategy={options.strategy!r}",
            why="shares that change hands are TuML-MC's, split by key",
            do="Use strategy='tuml_mc', or leave elastic= out",
        )
    if not query.by and options.strategy == "auto":
        why = "without by= the state is in one share, which moves between threads as asked for"
        return designs.Design("tuml_sc", 1, why)
    made = designs.design(query, "tuml_mc", options.elastic)
    return replace(made, why=f"{options.elastic} shares split by key; threads serve them as asked for")


def _line(query: Query, options: Options) -> str | None:
    """What tuples of a join can go by, as far as that is seen now: `Parts.line`."""
    if isinstance(query, Asof):
        return "hash" if query.by else None
    if not isinstance(query, Join):
        return None
    given = options.schemas or {}
    schemas = [
        given.get(str(node.name)) or (node.schema if isinstance(node, Stream) else None) for node in query.inputs
    ]
    predicate = query.predicate
    if schemas[0] is not None and schemas[1] is not None:
        with contextlib.suppress(QueryError):  # whoever binds the query will say so
            predicate = predicate.bind(schemas[0], schemas[1])
    return shares_line(predicate.expr)


def _elastic_join(query: Query, kind: str, options: Options) -> Plan:
    """Shares that change hands have segments of their own: nobody can wait for another share, which may be the same thread's."""
    shares = options.elastic or 1
    usual = {"inner": "scalejoin", "asof": "asof"}.get(kind, "dpjoin")
    line = _line(query, options)
    if options.layout == "auto" and not options.emitter:
        asked = options.strategy == "partitioned" and (line is not None or kind != "asof")
        if asked or (options.strategy == "auto" and line is not None and shares > 1):
            wish = Wish(shares, kind, line=line)
            made = asof.plan(wish) if kind == "asof" else registry.strategy("partitioned").plan(wish)
            made.check()
            served = f"{counted(shares, 'share')} in the place of workers, which threads serve as asked for"
            return replace(made, why=f"{served}; {made.why}")
    if options.strategy not in ("auto", usual) or options.layout != "auto":
        raise QueryError(
            f"elastic={options.elastic} with strategy={options.strategy!r}, layout={options.layout!r}",
            why="shares that change hands have window segments of their own, which other workers' results don't wait for",
            do=f"Leave strategy= and layout= out: {_a(kind)} join has {usual}'s shares; or leave elastic= out",
        )
    if options.emitter:
        raise QueryError(
            f"elastic={options.elastic} with emitter=True",
            why="shares that change hands each read all tuples, since any thread may serve any of them next",
            do="Leave one of them out",
        )
    wish = Wish(shares, kind)
    made = asof.plan(wish) if kind == "asof" else scalejoin.plan(wish) if kind == "inner" else dpjoin.apart(wish)
    made.check()
    if kind == "inner":
        how = f"see every tuple, each stores one in {shares} of either stream"
    else:
        own, other = ("right", "left") if model.whole(kind) == (1,) else ("left", "right")
        how = f"take {own} tuples by turns, each keeps {'the last right ones' if kind == 'asof' else f'the {other} window'}"
    return replace(made, why=f"{shares} shares {how}; threads serve them as asked for")


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "ai" else f"a {kind}"


def _check_elastic(options: Options) -> None:
    if options.elastic is None:
        if options.policy is not None:
            raise QueryError(
                "policy= without elastic=",
                why="the workers of such a run are fixed",
                do="Say elastic=8, or how many threads there may be at most",
            )
    elif (options.workers or 1) > options.elastic:
        raise QueryError(
            f"workers={options.workers} with elastic={options.elastic}",
            why="there can be no more threads than elastic= says",
            do="Raise it, or begin with fewer workers",
        )


def _punctuates(strategy: str) -> bool:
    return strategy in registry.names() and registry.strategy(strategy).punctuates


def _default(options: Options) -> int:
    """Workers where nobody has said how many: as many as the layout has places, else one a core."""
    asked = model.workers_for(options.layout)
    return asked if asked is not None else max(1, os.cpu_count() or 1)
