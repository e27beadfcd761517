"""As-of join: the last quote at or before each trade, per symbol, no older than ten seconds."""

import numpy as np
import pyarrow as pa

import plait

trades = plait.stream("trades", unit="ms")
quotes = plait.stream("quotes", unit="ms", source="feed", sources=["east", "west"], disorder="2ms")

query = plait.asof(trades, quotes, by="symbol", within="10s")


def data() -> dict[str, pa.Table]:
    """Seeded, so that every run and every executor sees the same rows."""
    dice = np.random.default_rng(42)
    n = 2_000
    symbols = np.array(["AAA", "BBB", "CCC", "DDD"])
    at = np.sort(dice.integers(0, 60_000, n)) + 1_700_000_000_000
    # Each feed may run back by two milliseconds: that is its declared disorder.
    jitter = np.where(dice.random(n) < 0.2, dice.integers(0, 3, n), 0)
    return {
        "trades": pa.table({"ts": at, "symbol": dice.choice(symbols, n), "size": dice.integers(1, 100, n)}),
        "quotes": pa.table(
            {
                "ts": np.sort(dice.integers(0, 60_000, n)) + 1_700_000_000_000 - jitter,
                "feed": dice.choice(["east", "west"], n),
                "symbol": dice.choice(symbols, n),
                "price": np.round(dice.normal(100, 5, n), 2),
            }
        ),
    }
