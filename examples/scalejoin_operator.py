"""ScaleJoin written as an operator of one's own: algorithm 4 of the STRETCH paper. `plait.join` does the same, faster.

Every bucket sees every tuple, and compares it with what it holds of the other stream; exactly one bucket keeps it.
Buckets count alike, because all of them see the same tuples in the same order. A trigger's partners come bucket by
bucket: the papers' outer order.
"""

from collections import deque

import numpy as np
import pyarrow as pa

import plait

BUCKETS = 8
WITHIN_US = 100_000
BAND = 400

quotes = plait.stream("quotes", unit="us")
trades = plait.stream("trades", unit="us")


class Bucket:
    """A bucket's part of both windows, and how many tuples there were so far."""

    def __init__(self, number):
        self.number, self.counter = number, 0
        self.windows = {"quotes": deque(), "trades": deque()}


def near(quote, trade):
    return abs(quote.x - trade.a) <= BAND and abs(quote.y - trade.b) <= BAND


def process(bucket, t):
    bucket.counter += 1
    opposite = bucket.windows["trades" if t.stream == "quotes" else "quotes"]
    while opposite and opposite[0].ts < t.ts - WITHIN_US:
        opposite.popleft()
    for kept in opposite:
        quote, trade = (t, kept) if t.stream == "quotes" else (kept, t)
        if near(quote, trade):
            yield (quote.ts, quote.x, quote.y, trade.ts, trade.a, trade.b)
    if bucket.counter % BUCKETS == bucket.number:
        bucket.windows[t.stream].append(t)


query = plait.operator(
    [quotes, trades],
    buckets=BUCKETS,
    route=lambda t: plait.ALL,
    state=Bucket,
    process=process,
    output={"quotes_ts": "int64", "x": "int32", "y": "float32", "trades_ts": "int64", "a": "int32", "b": "float32"},
)

join = plait.join(quotes, trades, on=lambda q, t: (abs(q.x - t.a) <= BAND) & (abs(q.y - t.b) <= BAND), within=WITHIN_US)


def data():
    dice = np.random.default_rng(3)
    n = 400

    def one(x, y):
        columns = {x: dice.integers(1, 10_001, n, dtype=np.int32), y: (dice.random(n) * 10_000).astype(np.float32)}
        return pa.table({"ts": np.sort(dice.integers(0, 400_000, n)), **columns})

    return {"quotes": one("x", "y"), "trades": one("a", "b")}
