"""The papers' band join: R<ts, x, y, z> and S<ts, a, b, c, d>, joined where x and a, and y and b, are within 10.

The benchmark of CellJoin and Handshake join as ScaleJoin's section VI has it: x, a int; y, b float; z char[20];
c double; d bool; x, y, a, b uniform in [1, 10000], so that about one comparison in 250,000 gives a result. Section VI's
three studies of skew («Skew-resilience evaluation», windows of 5 minutes) are presets here, and so are DP-Join's
asymmetric streams (section 5.3.2).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from plait.connectors.contract import BATCH_ROWS
from plait.connectors.synthetic.rates import Constant, Ints, Peaks, Rate, Rates, Sinusoid, as_rates
from plait.connectors.synthetic.workload import Part, Workload, build, source_names

#: The streams' names. (Not "R" and "S": `r` is the word for a join's right side.)
LEFT, RIGHT = "stream_r", "stream_s"
_TEXT: Final = 20
_LEFT_COLUMNS: Final = (("x", pa.int32()), ("y", pa.float32()), ("z", pa.string()))
_RIGHT_COLUMNS: Final = (("a", pa.int32()), ("b", pa.float32()), ("c", pa.float64()), ("d", pa.bool_()))


def band_join(
    *,
    left: Rates = 1_000,
    right: Rates = 1_000,
    seconds: int | None = None,
    rows: int | None = None,
    seed: int = 1,
    batch_rows: int = BATCH_ROWS,
    name: str = "band_join",
) -> Workload:
    """Make the papers' two streams, `stream_r` <ts, x, y, z> and `stream_s` <ts, a, b, c, d>, at any rates.

    Either `seconds` or `rows` says how long the workload is.

    Args:
        left: Of `stream_r`: tuples a second, a `Constant`, `Sinusoid` or `Peaks`, or a list of these. A list means several
            sources, which the column `source` then names (`r0`, `r1`, ...).
        right: The same of `stream_s` (`s0`, `s1`, ...).
        seconds: How long the workload is.
        rows: How many rows both streams have together.
        seed: Another seed gives other rows; the same one always the same.
        batch_rows: Rows in a chunk, at most. They are the same rows however they are cut.
        name: The workload's name.

    Returns:
        A `Workload`.

    Raises:
        QueryError: An option has no meaning, or not exactly one of `seconds` and `rows` is given.

    Example:
        >>> from plait.connectors import synthetic
        >>> synthetic.band_join(left=[100, 50], right=200, seconds=2).feeds["stream_r"].rows
        300
    """
    parts = []
    for stream, prefix, rates, columns, make in (
        (LEFT, "r", as_rates(left, "left"), _LEFT_COLUMNS, _left),
        (RIGHT, "s", as_rates(right, "right"), _RIGHT_COLUMNS, _right),
    ):
        several = "source" if len(rates) > 1 else None
        parts.append(Part(stream, source_names(prefix, len(rates)), rates, columns, make, several))
    return build(name, parts, seconds=seconds, rows=rows, seed=seed, batch_rows=batch_rows)


def _left(random: np.random.Generator, times: Ints) -> list[pa.Array]:
    count = len(times)
    letters = random.integers(ord("a"), ord("z") + 1, (count, _TEXT), dtype=np.uint8)
    ends = np.arange(0, (count + 1) * _TEXT, _TEXT, dtype=np.int32)
    text = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(letters)])
    return [pa.array(_whole(random, count)), pa.array(_float32(random, count)), text]


def _right(random: np.random.Generator, times: Ints) -> list[pa.Array]:
    count = len(times)
    c = 1.0 + random.random(count) * 9_999.0
    d = random.integers(0, 2, count, dtype=np.uint8).astype(bool)
    return [pa.array(_whole(random, count)), pa.array(_float32(random, count)), pa.array(c), pa.array(d)]


def _whole(random: np.random.Generator, count: int) -> np.ndarray:
    return random.integers(1, 10_001, count, dtype=np.int32)


def _float32(random: np.random.Generator, count: int) -> np.ndarray:
    return np.float32(1) + random.random(count, dtype=np.float32) * np.float32(9_999)


# --- presets ------------------------------------------------------------------------------------------------


def scalejoin_constant(
    *, seconds: int | None = None, rows: int | None = None, seed: int = 1, batch_rows: int = BATCH_ROWS
) -> Workload:
    """Make ScaleJoin's «Constant distinct rates» (section VI): one R source with 1,200 t/s, four S sources with 900 t/s together.

    Together, since 10 threads at 65 million comparisons/s are 2 x 300 s x 1,200 x 900. How the four share the 900 is
    only drawn in the paper (figure 8a): 360, 270, 180 and 90 here.

    Args:
        seconds: How long the workload is.
        rows: How many rows both streams have together.
        seed: Another seed gives other rows; the same one always the same.
        batch_rows: Rows in a chunk, at most.

    Returns:
        A `Workload`.

    Raises:
        QueryError: Not exactly one of `seconds` and `rows` is given, or an option has no meaning.

    Example:
        >>> from plait.connectors import synthetic
        >>> synthetic.scalejoin_constant(seconds=1).feeds["stream_s"].rows
        900
    """
    right = [Constant(360), Constant(270), Constant(180), Constant(90)]
    return band_join(
        left=1_200, right=right, seconds=seconds, rows=rows, seed=seed, batch_rows=batch_rows, name="scalejoin_constant"
    )


def scalejoin_fluctuating(
    *, seconds: int | None = None, rows: int | None = None, seed: int = 1, batch_rows: int = BATCH_ROWS
) -> Workload:
    """Make ScaleJoin's «Fluctuating distinct rates» (section VI): three R and two S sources, sinusoidal.

    The paper gives what comes of it: 18.5 to 55 million comparisons/s on each of 12 threads. These rates give 19 to 54.

    Args:
        seconds: How long the workload is.
        rows: How many rows both streams have together.
        seed: Another seed gives other rows; the same one always the same.
        batch_rows: Rows in a chunk, at most.

    Returns:
        A `Workload`.

    Raises:
        QueryError: Not exactly one of `seconds` and `rows` is given, or an option has no meaning.

    Example:
        >>> from plait.connectors import synthetic
        >>> len(synthetic.scalejoin_fluctuating(seconds=1).feeds["stream_r"].lanes)
        3
    """
    left = [Sinusoid(400, 240, 60), Sinusoid(300, 120, 100), Sinusoid(150, 90, 150)]
    right = [Sinusoid(500, 300, 75), Sinusoid(360, 150, 120)]
    return band_join(
        left=left,
        right=right,
        seconds=seconds,
        rows=rows,
        seed=seed,
        batch_rows=batch_rows,
        name="scalejoin_fluctuating",
    )


def scalejoin_peaks(
    *, seconds: int | None = None, rows: int | None = None, seed: int = 1, batch_rows: int = BATCH_ROWS
) -> Workload:
    """Make ScaleJoin's «Constant distinct rates with peaks» (section VI): four R and two S sources with sudden peaks.

    The paper says no more than that and shows the rates in figure 8c. These are ours: fourfold for a few seconds, at
    different moments in every source.

    Args:
        seconds: How long the workload is.
        rows: How many rows both streams have together.
        seed: Another seed gives other rows; the same one always the same.
        batch_rows: Rows in a chunk, at most.

    Returns:
        A `Workload`.

    Raises:
        QueryError: Not exactly one of `seconds` and `rows` is given, or an option has no meaning.

    Example:
        >>> from plait.connectors import synthetic
        >>> synthetic.scalejoin_peaks(rows=100).declarations["stream_s"]["sources"]
        ('s0', 's1')
    """
    left: list[Rate] = [
        Peaks(300, 1_200, 60, 5, 20),
        Peaks(200, 800, 90, 5, 45),
        Constant(150),
        Peaks(100, 400, 45, 3, 10),
    ]
    right: list[Rate] = [Peaks(500, 2_000, 75, 5, 30), Constant(250)]
    return band_join(
        left=left, right=right, seconds=seconds, rows=rows, seed=seed, batch_rows=batch_rows, name="scalejoin_peaks"
    )


def dpjoin_asymmetric(
    *, seconds: int | None = None, rows: int | None = None, seed: int = 1, batch_rows: int = BATCH_ROWS
) -> Workload:
    """Make DP-Join's «Asymmetric streams» (section 5.3.2): X with 1,000 tuples a second, Y with 3,000.

    Args:
        seconds: How long the workload is.
        rows: How many rows both streams have together.
        seed: Another seed gives other rows; the same one always the same.
        batch_rows: Rows in a chunk, at most.

    Returns:
        A `Workload`.

    Raises:
        QueryError: Not exactly one of `seconds` and `rows` is given, or an option has no meaning.

    Example:
        >>> from plait.connectors import synthetic
        >>> {name: feed.rows for name, feed in synthetic.dpjoin_asymmetric(seconds=1).feeds.items()}
        {'stream_r': 1000, 'stream_s': 3000}
    """
    return band_join(
        left=1_000, right=3_000, seconds=seconds, rows=rows, seed=seed, batch_rows=batch_rows, name="dpjoin_asymmetric"
    )
