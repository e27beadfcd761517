"""Popularity and small talk: Zipf's law, and text made of whole columns of words."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from plait.connectors.synthetic.rates import Ints

WORDS: Final = (
    "love", "this", "track", "so", "much", "and", "the", "drop", "at", "two", "minutes", "is", "pure", "magic",
    "great", "bass", "line", "nice", "mix", "who", "made", "that", "intro", "sounds", "like", "summer", "again",
    "please", "play", "it", "live", "next", "week", "with", "more", "drums", "best", "song", "of", "all",
    "year", "my", "friends", "keep", "asking", "for", "name", "cannot", "stop", "listening", "on", "repeat",
    "beautiful", "voice", "what", "a", "tune", "respect", "from", "far", "away", "north", "south",
)  # fmt: skip


@lru_cache(maxsize=8)
def zipf_edges(count: int, exponent: float) -> NDArray[np.float64]:
    """The cumulative popularity of `count` things, the k-th of which has weight `1 / k ** exponent`."""
    edges = np.cumsum(1.0 / np.arange(1, count + 1, dtype=np.float64) ** exponent)
    edges /= edges[-1]
    edges.flags.writeable = False
    return edges


def zipf(random: np.random.Generator, shape: int | tuple[int, int], count: int, exponent: float) -> Ints:
    """Ranks from 0, the most popular first."""
    # A draw above the last edge can't be: `random` is below 1, and the last edge is 1.
    return np.searchsorted(zipf_edges(count, exponent), random.random(shape), side="right").astype(np.int64)


def sentences(random: np.random.Generator, count: int, words: int) -> pa.Array:
    """`count` texts of so many words each."""
    picks = random.integers(0, len(WORDS), (words, count))
    # Made here, not above: `pa.array` loads pandas if it is installed, and an import should not.
    words_array = pa.array(WORDS)
    return pc.binary_join_element_wise(*(words_array.take(pa.array(pick)) for pick in picks), pa.scalar(" "))
