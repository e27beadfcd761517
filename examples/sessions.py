"""An operator of one's own: sessions of clicks per user, closed by a timer after thirty seconds of silence."""

import zlib

import numpy as np
import pyarrow as pa

import plait

GAP_US = 30_000_000
BUCKETS = 16

clicks = plait.stream("clicks", unit="ms", source="server", sources=[0, 1, 2])


def process(sessions, click):
    """Each bucket holds the open sessions of its users: user -> [start, last click, count]."""
    session = sessions.setdefault(click.user, [click.ts, click.ts, 0])
    session[1], session[2] = click.ts, session[2] + 1
    yield plait.timer(click.ts + GAP_US)


def close(sessions, at):
    for user in sorted(sessions):
        start, last, count = sessions[user]
        if last + GAP_US <= at:
            del sessions[user]
            yield {"user": user, "start": start, "seconds": (last - start) / 1e6, "clicks": count}


query = plait.operator(
    clicks,
    buckets=BUCKETS,
    route=lambda click: zlib.crc32(click.user.encode()) % BUCKETS,  # not hash(): that differs from run to run
    state=dict,
    process=process,
    on_timer=close,
    output={"user": "string", "start": "timestamp", "seconds": "float64", "clicks": "int64"},
)


def data() -> dict[str, pa.Table]:
    dice = np.random.default_rng(7)
    n = 3_000
    return {
        "clicks": pa.table(
            {
                "ts": np.sort(dice.integers(0, 600_000, n)) + 1_700_000_000_000,
                "server": dice.integers(0, 3, n),
                "user": np.char.add("user", dice.zipf(1.5, n).clip(max=200).astype(str)),
            }
        )
    }
