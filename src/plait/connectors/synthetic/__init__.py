"""Synthetic workloads: the papers' streams, seeded and reproducible, in constant memory at any size.

    work = synthetic.scalejoin_fluctuating(seconds=600)
    streams = {name: plait.stream(name, **declared) for name, declared in work.declarations.items()}
    work.feeds                                # {stream name: Feed}, to be pulled
    synthetic.tables(work)                    # {stream name: pa.Table}, if it is small

Within a source the timestamps never run back. They start at 2024-01-01T00:00:00Z.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

from plait.connectors.synthetic.band import (
    band_join,
    dpjoin_asymmetric,
    scalejoin_constant,
    scalejoin_fluctuating,
    scalejoin_peaks,
)
from plait.connectors.synthetic.energy import energy
from plait.connectors.synthetic.rates import Constant, Peaks, Rate, Sinusoid
from plait.connectors.synthetic.songs import songs
from plait.connectors.synthetic.tweets import tweets
from plait.connectors.synthetic.workload import Workload, tables
from plait.errors import QueryError

#: Every workload by the name a configuration file gives it.
WORKLOADS: Final[dict[str, Callable[..., Workload]]] = {
    make.__name__: make
    for make in (
        band_join, scalejoin_constant, scalejoin_fluctuating, scalejoin_peaks, dpjoin_asymmetric, energy, songs, tweets,
    )
}  # fmt: skip


def workload(name: str, **options: Any) -> Workload:
    """Make a workload by its name, as a TOML file gives it.

    Args:
        name: One of `WORKLOADS`.
        **options: Those of the workload's function.

    Returns:
        A `Workload`.

    Raises:
        QueryError: There is no such workload or option, or an option has no meaning.

    Example:
        >>> from plait.connectors import synthetic
        >>> synthetic.workload("songs", rows=10, sources=2).feeds["comments"].rows
        10
    """
    if not isinstance(name, str) or name not in WORKLOADS:
        raise QueryError(f"There is no workload {name!r}", do=f"Use one of {', '.join(WORKLOADS)}")
    make = WORKLOADS[name]
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            raise QueryError(f"Workload {name!r} has no option {option!r}", do=f"It has {', '.join(known)}")
    return make(**options)


__all__ = [
    "WORKLOADS", "Constant", "Peaks", "Rate", "Sinusoid", "Workload", "band_join", "dpjoin_asymmetric", "energy",
    "scalejoin_constant", "scalejoin_fluctuating", "scalejoin_peaks", "songs", "tables", "tweets", "workload",
]  # fmt: skip
