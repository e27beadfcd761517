"""Energy: readings of 243 smart meters, and the alarms they send, through data concentrators.

After multiway-aggregation.txt: section 7.1's dataset EC, <ts, meter, cons> from 243 meters, and figure 1's alarms
<ts, meter>. The meters form a mesh, so a message of a meter may come through any concentrator: the concentrator is the
physical source, the meter the key, and neither tells the other.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from plait.connectors.contract import BATCH_ROWS
from plait.connectors.synthetic.rates import Ints, as_rates
from plait.connectors.synthetic.workload import Part, Workload, build, check_count, source_names

METERS: Final = 243
#: A household's load over the hours of a day, as a multiple of its mean.
_DAY: Final = np.array(
    [
        0.6,
        0.5,
        0.5,
        0.4,
        0.4,
        0.5,
        0.8,
        1.3,
        1.4,
        1.1,
        0.9,
        0.9,
        1.0,
        0.9,
        0.8,
        0.9,
        1.1,
        1.5,
        1.9,
        2.0,
        1.8,
        1.4,
        0.9,
        0.5,
    ]
)


def energy(
    *,
    readings_per_second: float = 1_000,
    alarms_per_second: float = 10,
    concentrators: int = 4,
    meters: int = METERS,
    seconds: int | None = None,
    rows: int | None = None,
    seed: int = 1,
    batch_rows: int = BATCH_ROWS,
) -> Workload:
    """Make `readings` <ts, meter, cons, concentrator> and `alarms` <ts, meter, concentrator> of smart meters.

    Args:
        readings_per_second: Of all concentrators together, who share it equally.
        alarms_per_second: The same.
        concentrators: How many sources each stream has.
        meters: How many meters there are; they count from 1.
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
        >>> synthetic.tables(synthetic.energy(rows=1, meters=1, concentrators=1))["readings"]["meter"].to_pylist()
        [1]
    """
    for option, value in (("concentrators", concentrators), ("meters", meters)):
        check_count(option, value)
    names = source_names("dc", concentrators)
    meter = ("meter", pa.int32())

    def which(random: np.random.Generator, times: Ints) -> np.ndarray:
        return random.integers(1, meters + 1, len(times), dtype=np.int32)

    def readings(random: np.random.Generator, times: Ints) -> list[pa.Array]:
        by = which(random, times)
        hour = times // 3_600_000_000 % 24
        mean = 0.2 + (by * 7_919 % 1_000) / 1_000  # kWh, its own for each meter
        cons = np.round(mean * _DAY[hour] * (0.5 + random.random(len(times))), 3)
        return [pa.array(by), pa.array(cons)]

    def alarms(random: np.random.Generator, times: Ints) -> list[pa.Array]:
        return [pa.array(which(random, times))]

    rate_r = as_rates([readings_per_second / concentrators] * concentrators, "readings_per_second")
    rate_a = as_rates([alarms_per_second / concentrators] * concentrators, "alarms_per_second")
    parts = [
        Part("readings", names, rate_r, (meter, ("cons", pa.float64())), readings, "concentrator"),
        Part("alarms", names, rate_a, (meter,), alarms, "concentrator"),
    ]
    return build("energy", parts, seconds=seconds, rows=rows, seed=seed, batch_rows=batch_rows)
