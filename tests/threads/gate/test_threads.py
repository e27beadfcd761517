"""Compiled gates and real threads: millions of tuples, tiny rings, compared with a NumPy sort."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from tests.examples import SOAK
from tests.threads.gate.gate_scenarios import KINDS

from plait.threads.atomics import compiled
from plait.threads.gate import calls, codes, elastic, ring, skiplist
from plait.threads.gate import words as gate_words
from plait.threads.gate.codes import DONE, FULL, STUCK
from plait.threads.gate.skiplist import add_waiting as add_to_list
from plait.threads.gate.skiplist import read_waiting as read_list

from plait.threads.gate.ring import add_waiting as add_to_ring  # isort: skip
from plait.threads.gate.ring import read_waiting as read_ring  # isort: skip

LONGER = max(SOAK, 1)
SEED = int(os.environ.get("PLAIT_SEED", "20140615"))
NAP = 1_000_000  # as in the benchmark of gates: kernels are compiled for a constant that they are called with


@compiled
def feed_list(g, slot, ts, seq, ref, sizes):
    low = 0
    turn = 0
    while low < len(ts):
        high = min(len(ts), low + sizes[turn % len(sizes)])
        number = add_to_list(g, slot, ts, seq, ref, low, high, ts[high - 1], NAP, True)
        if number > 0:
            low += number
            turn += 1
        elif number != FULL and number != STUCK:
            return number
    return 0


@compiled
def feed_ring(g, slot, ts, seq, ref, sizes):
    low = 0
    turn = 0
    while low < len(ts):
        high = min(len(ts), low + sizes[turn % len(sizes)])
        number = add_to_ring(g, slot, ts, seq, ref, low, high, ts[high - 1], NAP, True)
        if number > 0:
            low += number
            turn += 1
        elif number != FULL and number != STUCK:
            return number
    return 0


@compiled
def drain_list(g, reader, sizes, ts, origin, seq, ref):
    done = 0
    turn = 0
    while True:
        most = min(sizes[turn % len(sizes)], len(ts) - done)
        number = read_list(g, reader, most, ts[done:], origin[done:], seq[done:], ref[done:], NAP)
        turn += 1
        if number == DONE:
            return done
        if number < 0:
            return number
        done += number


@compiled
def drain_ring(g, reader, sizes, ts, origin, seq, ref):
    done = 0
    turn = 0
    while True:
        most = min(sizes[turn % len(sizes)], len(ts) - done)
        number = read_ring(g, reader, most, ts[done:], origin[done:], seq[done:], ref[done:], NAP)
        turn += 1
        if number == DONE:
            return done
        if number < 0:
            return number
        done += number


FEED = {"skiplist": feed_list, "ring": feed_ring}
DRAIN = {"skiplist": drain_list, "ring": drain_ring}


def make_gate(kind, origins, *, readers, capacity, pending, slots=0, seats=0):
    store = "nodes" if kind == "skiplist" else "rings"
    g = gate_words.allocate(
        slots=slots or len(origins), seats=seats or readers, capacity=capacity, pending=pending, store=store
    )
    gate_words.prepare(g, origins, readers)
    if store == "nodes":
        gate_words.prepare_nodes(g)
    return g


def make_sources(rng, sources, number, *, step, least=0):
    out = []
    for slot in range(sources):
        ts = np.cumsum(rng.integers(least, step, number)).astype(np.int64)
        seq = np.cumsum(rng.integers(1, 3, number)).astype(np.int64)
        out.append((ts, seq, np.arange(number, dtype=np.int64) + slot * 10**9))
    return out


def expected(origins, sources):
    ts, seq, ref = (np.concatenate([source[i] for source in sources]) for i in range(3))
    origin = np.repeat(np.array(origins, dtype=np.int64), [len(source[0]) for source in sources])
    order = np.lexsort((seq, origin, ts))
    return [column[order] for column in (ts, origin, seq, ref)]


def in_threads(*jobs):
    failures = []

    def guard(job):
        try:
            job()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guard, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=280)
    assert not any(thread.is_alive() for thread in threads), "a thread does not come to its end"
    assert not failures, failures


def run(kind, *, sources, readers, number, capacity, pending, sizes, takes, step, least, seed):
    rng = np.random.default_rng(seed)
    columns = make_sources(rng, sources, number, step=step, least=least)
    origins = rng.permutation(sources).tolist()  # slots are not in order of origin
    g = make_gate(kind, origins, readers=readers, capacity=capacity, pending=pending)
    outs = [[np.zeros(sources * number + 1, dtype=np.int64) for _ in range(4)] for _ in range(readers)]
    counts = [0] * readers

    def push(slot):
        assert FEED[kind](g, slot, *columns[slot], np.array(sizes)) == 0
        assert calls.end(g, slot) == 0

    def pull(reader):
        counts[reader] = DRAIN[kind](g, reader, np.array(takes), *outs[reader])

    in_threads(
        *(lambda slot=slot: push(slot) for slot in range(sources)),
        *(lambda reader=reader: pull(reader) for reader in range(readers)),
    )
    want = expected(origins, columns)
    for count, out in zip(counts, outs, strict=True):
        assert count == sources * number
        for got, column in zip(out, want, strict=True):
            assert np.array_equal(got[:count], column)


LARGE = [
    # sources, readers, tuples a source, capacity, pending, batches, reads
    (1, 1, 1_000_000, 4096, 4096, [1024], [1024]),
    (2, 1, 600_000, 4096, 4096, [1000, 24, 3], [700]),
    (2, 4, 200_000, 1000, 1000, [64, 512], [333, 1]),
    (5, 2, 120_000, 512, 300, [100, 1, 77], [64, 128]),
    (8, 3, 60_000, 2000, 2000, [512, 8], [4096]),
]
TINY = [
    (1, 2, 20_000, 1, 2, [1, 5], [1, 3]),
    (2, 1, 20_000, 1, 2, [3], [2]),
    (3, 3, 8_000, 3, 4, [1, 9], [5, 1]),
    (8, 4, 2_000, 2, 9, [2, 30], [7]),
]


@pytest.mark.crossed
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", LARGE, ids=lambda shape: "x".join(map(str, shape[:3])))
@pytest.mark.parametrize("step", [2, 40])
def test_many_tuples_come_out_sorted(kind, shape, step):
    sources, readers, number, capacity, pending, sizes, takes = shape
    run(
        kind, sources=sources, readers=readers, number=number // (1 if step == 40 else 4), capacity=capacity,
        pending=pending, sizes=sizes, takes=takes, step=step, least=0, seed=SEED + step,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", TINY, ids=lambda shape: "x".join(map(str, shape[:3])))
def test_tiny_rings(kind, shape):
    sources, readers, number, capacity, pending, sizes, takes = shape
    run(
        kind, sources=sources, readers=readers, number=number * LONGER, capacity=capacity, pending=pending, sizes=sizes,
        takes=takes, step=9, least=1, seed=SEED,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12 * LONGER))
def test_soak_with_random_shapes(kind, seed):
    rng = np.random.default_rng(SEED + seed)
    sources, readers = int(rng.integers(1, 9)), int(rng.integers(1, 5))
    run(
        kind, sources=sources, readers=readers, number=1_600_000 // sources // readers,
        capacity=int(rng.integers(100, 5000)), pending=int(rng.integers(100, 5000)),
        sizes=rng.integers(1, 1500, 7), takes=rng.integers(1, 3000, 5), step=int(rng.integers(2, 60)), least=0, seed=seed,
    )  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_readers_come_and_go_under_load(kind):
    """One reader stays; others are announced from it and removed again and again. Each sees a part of one sequence."""
    module = {"skiplist": skiplist, "ring": ring}[kind]
    rng = np.random.default_rng(SEED)
    columns = make_sources(rng, 2, 150_000, step=20)
    g = make_gate(kind, [0, 1], readers=1, seats=3, capacity=500, pending=500)
    want = expected([0, 1], columns)
    sizes = np.array([64, 7])

    def push(slot):
        assert FEED[kind](g, slot, *columns[slot], sizes) == 0
        assert calls.end(g, slot) == 0

    def pull():
        done = 0
        columns_out = [np.zeros(97, dtype=np.int64) for _ in range(4)]
        guests: dict[int, int] = {}
        turn = 0
        while (number := module.read_waiting(g, 0, 97, *columns_out, NAP)) != DONE:
            assert number >= 0
            check(columns_out, number, done)
            done += number
            turn += 1
            if turn % 5 == 0:
                for seat in (1, 2):
                    step_guest(seat, guests, done)
        assert done == len(want[0])

    def check(out, number, done):
        for got, column in zip(out, want, strict=True):
            assert np.array_equal(got[:number], column[done : done + number])

    def step_guest(seat, guests, done):
        out = [np.zeros(41, dtype=np.int64) for _ in range(4)]
        if seat not in guests:
            if elastic.announce_readers(g, np.array([seat]), 1, 0, 0) == 0:
                guests[seat] = done
            return
        number = module.read(g, seat, 41, *out)
        if number > 0:
            check(out, number, guests[seat])
            guests[seat] += number
        if done - guests[seat] > 300 or number < 0:
            assert elastic.remove_readers(g, np.array([seat]), 1, 0) == 1
            del guests[seat]

    in_threads(lambda: push(0), lambda: push(1), pull)


@pytest.mark.parametrize("kind", KINDS)
def test_sources_come_and_go_under_load(kind):
    """Source 0 stays and announces source 1 at its own ts, which pushes a little and is removed, again and again."""
    module = {"skiplist": skiplist, "ring": ring}[kind]
    g = make_gate(kind, [0], readers=2, slots=2, seats=2, capacity=300, pending=300)
    rounds, part = 300, 40
    sent: list[tuple[int, int, int]] = []

    def push_until_in(slot, ts, seq):
        low = 0
        while low < len(ts):
            number = module.add_waiting(g, slot, ts, seq, seq, low, len(ts), ts[-1], NAP, False)
            assert number > 0 or number == FULL, number
            low += max(number, 0)
        sent.extend((int(t), slot, int(s)) for t, s in zip(ts, seq, strict=True))

    def push():
        for turn in range(rounds):
            ts = np.arange(turn * part, (turn + 1) * part, dtype=np.int64)
            push_until_in(0, ts, ts)
            code = elastic.announce_sources(g, np.array([1]), np.array([1]), 1, int(ts[-1]), 0)
            assert code in (0, codes.DRAINING), code
            if code == 0:
                push_until_in(1, ts[-1:] + np.arange(3), ts[:3])
                assert elastic.remove_sources(g, np.array([1]), 1, 0) == 1
        assert calls.end(g, 0) == 0

    seen: list[list[tuple[int, int, int]]] = [[], []]

    def pull(reader):
        out = [np.zeros(50, dtype=np.int64) for _ in range(4)]
        while (number := module.read_waiting(g, reader, 50, *out, NAP)) != DONE:
            assert number >= 0
            seen[reader].extend(zip(*(column[:number].tolist() for column in out[:3]), strict=True))

    in_threads(push, lambda: pull(0), lambda: pull(1))
    assert seen[0] == seen[1] == sorted(sent)
    assert len(sent) > rounds * part


@pytest.mark.parametrize("kind", KINDS)
def test_memory_stays_flat(kind):
    """Places never repeat, memory does: the gate's array is all there is, and its size does not depend on the run."""
    g = make_gate(kind, [0, 1], readers=1, capacity=1000, pending=1000)
    size = g.nbytes
    run_length = 400_000
    columns = make_sources(np.random.default_rng(1), 2, run_length, step=10)
    out = [np.zeros(2 * run_length + 1, dtype=np.int64) for _ in range(4)]
    in_threads(
        lambda: (FEED[kind](g, 0, *columns[0], np.array([1000])), calls.end(g, 0)),
        lambda: (FEED[kind](g, 1, *columns[1], np.array([1000])), calls.end(g, 1)),
        lambda: DRAIN[kind](g, 0, np.array([1000]), *out),
    )
    assert g.nbytes == size
    assert np.array_equal(out[0][: 2 * run_length], expected([0, 1], columns)[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_memory_stays_flat_over_a_hundred_million_tuples(kind):
    """The process does not grow: measured after the first rounds, when everything is compiled and every page touched."""
    rounds, part = 50, 1_000_000
    g = make_gate(kind, [0, 1], readers=1, capacity=30_000, pending=30_000)
    steps = np.random.default_rng(SEED).integers(0, 5, part)
    ts = np.cumsum(steps).astype(np.int64)
    length = int(ts[-1]) + 1
    sizes = np.array([1024])
    pages = []

    def push(slot):
        for turn in range(rounds):
            seq = np.arange(turn * part, (turn + 1) * part)
            assert FEED[kind](g, slot, ts + turn * length, seq, seq, sizes) == 0
            if slot == 0:
                with open("/proc/self/statm") as file:
                    pages.append(int(file.read().split()[1]))
        assert calls.end(g, slot) == 0

    counted = []

    def pull():
        module = {"skiplist": skiplist, "ring": ring}[kind]
        out = [np.empty(8192, dtype=np.int64) for _ in range(4)]
        count, last = 0, -1
        while (number := module.read_waiting(g, 0, 8192, *out, NAP)) != DONE:
            assert number >= 0
            if number:
                assert out[0][0] >= last
                assert (np.diff(out[0][:number]) >= 0).all()
                last = int(out[0][number - 1])
            count += number
        counted.append(count)

    in_threads(lambda: push(0), lambda: push(1), pull)
    assert counted == [2 * rounds * part]
    grown_mb = (max(pages[10:]) - max(pages[:10])) * 4096 / 2**20
    assert grown_mb < 64, grown_mb
