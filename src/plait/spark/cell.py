"""A cell: folds progress, releases what is ready, joins it against its window, keeps the rest.

State is a manifest (small, rewritten each batch) and chunks (what came, written once, removed once). A chunk of arrived
tuples serves as pending and as window store alike: which of its tuples are pending is told by the frontier. So what is
written in a batch is in proportion to what came and what left, whatever the window holds.

The index over the window lives outside the state, in the worker process, and is only a cache. It is used if the steps
it has applied are, in order and without gaps, the beginning of the manifest's live steps or all of them; then it
catches up with the steps it lacks. If it has applied anything the manifest does not know (a failed attempt, a
speculative loser), or misses the step before its first, it is thrown away and built from the chunks. Each step bears
the id of its own attempt.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.errors import PendingError, RunError
from plait.order import AFTER_ALL, BEFORE_ALL, decode, encode
from plait.query.bind import Bound
from plait.query.stream import Stream
from plait.spark import wire
from plait.spark.layout import Layout
from plait.spark.live import Live, live
from plait.spark.progress import StreamProgress, frontier_of
from plait.spark.recent import NONE, Recent


class Store(Protocol):
    """Where a cell's state is kept: Spark's state store, or a dict in batch runs and tests."""

    def manifest(self) -> bytes | None: ...

    def put_manifest(self, data: bytes) -> None: ...

    def chunk(self, number: int) -> bytes: ...

    def put_chunk(self, number: int, data: bytes) -> None: ...

    def drop_chunk(self, number: int) -> None: ...


@dataclass(frozen=True)
class CellPlan:
    """Everything a cell must know, pickled into the tasks."""

    bound: Bound
    streams: tuple[tuple[Stream, tuple[Any, ...], bool], ...]  # stream, sources known at the start, open-ended
    layout: Layout
    fingerprint: str
    query: str = ""  # in words
    index: str = "auto"
    max_pending: int | None = None


@dataclass
class Step:
    """One batch as the manifest has it: `chunks` are [number, input, rows, max ts] of those still alive."""

    id: str
    frontier: int
    chunks: list[list[int]] = field(default_factory=list)
    released: list[int] = field(default_factory=lambda: [0, 0])


@dataclass
class Manifest:
    fingerprint: str
    frontier: int = BEFORE_ALL
    next_chunk: int = 0
    drained: bool = False
    late: int = 0
    events: int = -1  # the last control event applied: a replayed one is not applied twice
    steps: list[Step] = field(default_factory=list)
    progress: dict[str, Any] = field(default_factory=dict)

    def dump(self) -> bytes:
        data = self.__dict__ | {"steps": [[s.id, s.frontier, s.chunks, s.released] for s in self.steps]}
        return json.dumps(data).encode()

    @staticmethod
    def load(data: bytes) -> Manifest:
        parsed = json.loads(data)
        parsed["steps"] = [Step(*step) for step in parsed["steps"]]
        return Manifest(**parsed)


#: Live indexes of this process by (query, run, cell). Only a cache: see above.
_CACHE: dict[tuple[str, int], Live] = {}

#: Of each, the number of this process's step that used it last. Those longest out of use stand first in both.
_USED: dict[tuple[str, int], int] = {}
_steps = 0


def _remember(key: tuple[str, int], contents: Live, cells: int) -> None:
    """Cache an index, and let go of those that no step has wanted for long: of queries that ended, of cells that moved."""
    global _steps
    _steps += 1
    _CACHE.pop(key, None)
    _USED.pop(key, None)
    _CACHE[key], _USED[key] = contents, _steps
    for other in [k for k, used in _USED.items() if _steps - used > 256 + 16 * cells]:
        _CACHE.pop(other, None)
        del _USED[other]


def step(plan: CellPlan, cell: int, store: Store, bodies: Iterable[bytes], *, cache_key: str | None = None,
         near: Recent = NONE, end: bool = False) -> list[tuple[int, bytes]]:  # fmt: skip
    """Process one batch; gives (kind, body) rows. Acts only after the last of its input."""
    data = store.manifest()
    manifest = Manifest(plan.fingerprint) if data is None else Manifest.load(data)
    if manifest.fingerprint != plan.fingerprint:
        raise RunError(
            "The checkpoint was written by another query",
            why=f"its fingerprint is {manifest.fingerprint}, this query's is {plan.fingerprint}",
            do="Use another checkpoint folder",
        )
    contents = _contents(plan, cell, store, manifest, cache_key, near)
    progress = _progress(plan, manifest)
    arrived, late = _arrive(plan, cell, manifest, progress, bodies)
    if end:
        for stream in progress.values():
            stream.ended = True
    frontier = max(manifest.frontier, frontier_of(progress.values()))
    new = Step(uuid.uuid4().hex, frontier)
    for input, table in arrived.items():
        if table.num_rows:
            _keep(manifest, store, new, input, table, near)
    results = contents.advance(arrived, frontier)
    new.released = list(contents.released)
    _check_pending(plan, contents, progress, frontier)
    manifest.steps.append(new)
    manifest.frontier = frontier
    manifest.drained = manifest.drained or frontier == AFTER_ALL
    manifest.progress = {name: p.dump() for name, p in progress.items()}
    manifest.late += sum(t.num_rows for t in late)
    _expire(contents, manifest, store)
    _compact(contents, manifest, store, near)
    contents.steps = [s.id for s in manifest.steps]
    near.keep([] if manifest.drained else contents.steps)
    store.put_manifest(manifest.dump())
    if cache_key is not None:
        _remember((cache_key, cell), contents, plan.layout.cells)
    out = [(wire.RESULTS, body) for body in results.bodies()]
    out += [(wire.LATE, wire.table_bytes(t)) for t in late if t.num_rows]
    state = {"cell": cell, "frontier": frontier, "pending": contents.pending_rows, "late": manifest.late,
             "largest": max((at for p in progress.values() if (at := p.largest()) is not None), default=None)}  # fmt: skip
    return [*out, (wire.PROGRESS, json.dumps(state).encode())]


def _progress(plan: CellPlan, manifest: Manifest) -> dict[str, StreamProgress]:
    found = {}
    for stream, known, open_ended in plan.streams:
        found[stream.name] = StreamProgress(stream, known, open_ended=open_ended)
        if stream.name in manifest.progress:
            found[stream.name].load(manifest.progress[stream.name])
    return found


def _arrive(plan: CellPlan, cell: int, manifest: Manifest, progress: dict[str, StreamProgress],
            bodies: Iterable[bytes]) -> tuple[dict[int, pa.Table], list[pa.Table]]:  # fmt: skip
    """The batch's tuples by input, in total order, without the late ones, which are given apart."""
    heads: list[tuple[dict[str, Any], bytes]] = []
    splits: dict[str, list[list[Any]]] = {}
    events, elapsed = [], 0
    for body in bodies:
        head = wire.header(body)
        if "event" in head:
            events.append(head["event"])
            continue
        if "tick" in head:
            elapsed += head["tick"]
            continue
        heads.append((head, body))
        splits.setdefault(head["stream"], []).extend(head["splits"])
    if manifest.drained and heads:
        raise RunError("The query has been drained", why="rows came after its end", do="Use another checkpoint folder")
    limits = {name: progress[name].fold(found, manifest.frontier) for name, found in splits.items()}
    parts: dict[int, list[pa.Table]] = {}
    late: dict[str, list[pa.Table]] = {}
    for head, body in heads:
        table = wire.rows(body)
        if table is not None:
            kept, dropped = _judge(progress[head["stream"]], limits[head["stream"]], head, table, manifest.frontier)
            parts.setdefault(head["input"], []).append(kept)
            if dropped is not None and _owns(plan.layout, cell, head["input"]) and head["splits"]:
                late.setdefault(head["stream"], []).append(dropped)
    for event in sorted(events, key=lambda e: e["no"]):
        if event["no"] > manifest.events:
            manifest.events = event["no"]
            _apply(event, progress)
    for name, stream in progress.items():
        if stream.stream.idle_after_us is not None:
            spoke = {split[0] for split in splits.get(name, ())}
            stream.tick(
                elapsed, spoke | {e["source"] for e in events if e["do"] == "heartbeat" and e["stream"] == name}
            )
    return {input: _sorted(tables) for input, tables in parts.items()}, [_aside(n, cell, late[n]) for n in sorted(late)]


def _aside(stream: str, cell: int, tables: list[pa.Table]) -> pa.Table:
    """What a batch dropped of one stream here, in total order, without the columns that only cells need."""
    table = _sorted(tables)
    names = [n for n in table.column_names if not n.startswith("_plait_")]
    return table.select(names).replace_schema_metadata({"stream": stream, "cell": str(cell)})


def _owns(layout: Layout, cell: int, input: int) -> bool:
    """Whether this cell is the one that counts a tuple which several cells get."""
    if layout.kind == "see_all":
        return cell == 0
    if layout.kind == "hash":
        return True
    return cell % layout.columns == 0 if input == 0 else cell < layout.columns


def _apply(event: dict[str, Any], progress: dict[str, StreamProgress]) -> None:
    """A control event: end a source or a stream, a heartbeat, or drain everything."""
    if event["do"] == "drain":
        for stream in progress.values():
            stream.ended = True
        return
    if event["stream"] not in progress:
        raise RunError(
            f"Control event {event['no']} names stream {event['stream']!r}", why=f"there are {', '.join(progress)}"
        )
    stream = progress[event["stream"]]
    if event["do"] == "end" and event.get("source") is None:
        stream.ended = True
        return
    source = stream.know(event["source"])
    if event["do"] == "end":
        source.ended = True
    else:
        source.heartbeat = max(source.heartbeat, int(event["ts"]))


def _judge(stream: StreamProgress, limits: dict[tuple[Any, str], int], head: dict[str, Any], table: pa.Table,
           released: int) -> tuple[pa.Table, pa.Table | None]:  # fmt: skip
    """Part a packed row's tuples into those that count and those that are late or behind."""
    ts = table.column(wire.TS).to_numpy()
    split = table.column(wire.SPLIT).to_numpy()
    per_split = np.array([limits[(s[0], s[1])] for s in head["split_of"]], np.int64)
    wrong = ts < per_split[split]
    if wire.LATE_FLAG in table.column_names:
        wrong |= table.column(wire.LATE_FLAG).to_numpy(zero_copy_only=False)
    names = [n for n in table.column_names if n not in (wire.SPLIT, wire.LATE_FLAG)]
    behind = ts < released
    promised = np.array([stream.sources[s[0]].heartbeat for s in head["split_of"]], np.int64)[split]
    if not wrong.any() and not behind.any() and not (ts < promised).any():
        return table.select(names), None
    if wrong.any() and stream.stream.late == "error":
        at = int(np.flatnonzero(wrong)[0])
        name = head["split_of"][split[at]][0]
        seq = encode(decode(table.column(wire.KEY)[at].as_py())[3:])
        raise stream.late(name, int(ts[at]), int(per_split[split[at]]) + stream.stream.disorder_us, seq)
    if (broken := np.flatnonzero(~wrong & (ts < promised))).size:
        at = int(broken[0])
        raise stream.broken_promise(head["split_of"][split[at]][0], int(ts[at]), int(promised[at]))
    behind &= ~wrong
    if behind.any() and stream.stream.behind == "error":
        at = int(np.flatnonzero(behind)[0])
        raise stream.behind(head["split_of"][split[at]][0], int(ts[at]), released)
    gone = wrong | behind
    return table.select(names).filter(pa.array(~gone)), table.select(names).filter(pa.array(gone))


def _sorted(tables: list[pa.Table]) -> pa.Table:
    table = pa.concat_tables(tables)
    if not _in_order(table):
        table = table.take(pc.sort_indices(table, sort_keys=[(wire.TS, "ascending"), (wire.KEY, "ascending")]))
    return table.combine_chunks()


def _in_order(table: pa.Table) -> bool:
    """Whether rows stand in total order already, as those of one source mostly do."""
    ts = table.column(wire.TS).to_numpy()
    if (ts[1:] < ts[:-1]).any():
        return False
    ties = np.flatnonzero(ts[1:] == ts[:-1])
    keys = (table.column(wire.KEY).take(pa.array(ties + after)) for after in (0, 1))
    return len(ties) == 0 or bool(pc.all(pc.less(*keys)).as_py())


def _keep(manifest: Manifest, store: Store, new: Step, input: int, table: pa.Table, near: Recent) -> None:
    number = manifest.next_chunk
    manifest.next_chunk += 1
    new.chunks.append([number, input, table.num_rows, int(pc.max(table.column(wire.TS)).as_py())])
    data = wire.table_bytes(table)
    store.put_chunk(number, data)
    near.put(new.id, number, data)


def _expire(contents: Live, manifest: Manifest, store: Store) -> None:
    """Drop chunks none of whose tuples can find a partner any more, and the oldest steps once they have no chunk."""
    for one in manifest.steps:
        gone = [chunk for chunk in one.chunks if contents.outlived(chunk, manifest.frontier, manifest.steps)]
        for chunk in gone:
            store.drop_chunk(chunk[0])
        one.chunks = [chunk for chunk in one.chunks if chunk not in gone]
    while len(manifest.steps) > 1 and not manifest.steps[0].chunks:
        manifest.steps.pop(0)


def _compact(contents: Live, manifest: Manifest, store: Store, near: Recent) -> None:
    """Where most rows held are dead, write those alive as one step. It takes as many dead ones, so it costs no more.

    Earlier steps are gone from the manifest: a cache that is behind them finds no step of its own, and is built anew.
    """
    held = sum(chunk[2] for one in manifest.steps for chunk in one.chunks)
    alive = contents.compacted(held)
    if alive is None:
        return
    last = manifest.steps[-1]
    for one in manifest.steps:
        for chunk in one.chunks:
            store.drop_chunk(chunk[0])
    manifest.steps = [Step(last.id, last.frontier, released=last.released)]
    for input, table in alive.items():
        if table.num_rows:
            _keep(manifest, store, manifest.steps[0], input, table, near)


def _contents(plan: CellPlan, cell: int, store: Store, manifest: Manifest, cache_key: str | None,
              near: Recent) -> Live:  # fmt: skip
    """The cached index if its steps are a run of the manifest's, caught up; else one built from the chunks."""
    wanted = [s.id for s in manifest.steps]
    cached = _CACHE.pop((cache_key, cell), None) if cache_key is not None else None
    if cached is not None and cached.steps == wanted:
        return cached
    if cached is not None and cached.steps and cached.steps[-1] in wanted:
        at = wanted.index(cached.steps[-1])
        known = wanted[: at + 1]
        if cached.steps[-len(known) :] == known:
            for one in manifest.steps[at + 1 :]:
                cached.replay(dict(_chunks(store, [one], near)), one.frontier)
            return cached
    contents = live(plan.bound, plan.layout, cell, index=plan.index)
    tables: dict[int, list[pa.Table]] = {}
    for input, table in _chunks(store, manifest.steps, near):
        tables.setdefault(input, []).append(table)
    contents.replay({i: _sorted(parts) for i, parts in tables.items()}, manifest.frontier)
    return contents


def _chunks(store: Store, steps: list[Step], near: Recent) -> list[tuple[int, pa.Table]]:
    found = []
    for one in steps:
        for number, input, *_ in one.chunks:
            data = near.get(one.id, number)
            found.append((input, wire.table_of(store.chunk(number) if data is None else data)))
    return found


def _check_pending(plan: CellPlan, contents: Live, progress: dict[str, StreamProgress], frontier: int) -> None:
    if plan.max_pending is None or contents.pending_rows <= plan.max_pending:
        return
    holder = min(progress.values(), key=lambda p: p.progress()[0])
    raise PendingError(
        f"{contents.pending_rows} tuples wait for the frontier in one cell, more than max_pending={plan.max_pending}",
        why=f"source {holder.progress()[1]!r} of stream {holder.stream.name!r} holds it at {frontier}",
        do="Feed or end that source, send it heartbeats, or raise max_pending",
    )
