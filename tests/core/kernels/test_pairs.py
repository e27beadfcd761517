"""Pairs put into result order, against Python's sort: whatever the order in which a trigger's partners were found."""

from __future__ import annotations

import random

import numpy as np
import pytest

from plait.core.kernels import pairs


@pytest.mark.parametrize("seed", range(30))
def test_by_trigger_then_by_partner(seed: int) -> None:
    chance = random.Random(seed)
    side = np.array([chance.randrange(2) for _ in range(40)], np.uint8)
    positions = [np.flatnonzero(side == s) for s in (0, 1)]
    found = []  # side, probe, row
    for s in (0, 1):
        for p in range(len(positions[s])):
            rows = chance.sample(range(1000), chance.choice((0, 1, 2, 3, 70, 200)))
            order = chance.choice(("up", "down", "any", "nearly"))
            rows = rows if order == "any" else sorted(rows, reverse=order == "down")
            if order == "nearly" and len(rows) > 1:
                rows[0], rows[-1] = rows[-1], rows[0]
            found += [(s, p, r) for r in rows]
    first_probe, first_row = (100, 200), (5000, 7000)
    starts = np.zeros(len(side) + 1, np.int64)
    parts = []
    for s in (0, 1):
        own = [(p, r) for each, p, r in found if each == s]
        cut = chance.randrange(len(own) + 1)
        for part in (own[:cut], own[cut:]):
            probes, rows = (np.array([pair[k] for pair in part], np.int64) for k in (0, 1))
            parts.append((s, probes, rows))
            pairs.count_triggers(probes, positions[s], starts)
    pairs.sum_up(starts)
    assert starts[-1] == len(found)
    trigger, left, right = (np.zeros(len(found), np.int64) for _ in range(3))
    ids = (left, right)
    for s, probes, rows in parts:
        pairs.place(probes, rows, positions[s], first_probe[s], first_row[s], starts, trigger, ids[s], ids[1 - s])
    pairs.sort_partners(side, starts, left, right)
    expected = sorted((int(positions[s][p]), first_row[s] + r, first_probe[s] + p) for s, p, r in found)
    got = [
        (int(t), *((int(b), int(a)) if side[t] == 0 else (int(a), int(b))))
        for t, a, b in zip(trigger, left, right, strict=True)
    ]
    assert got == expected
