"""Tweets, each with several hashtags: a tuple that belongs to more than one key.

STRETCH's example (stretch.txt, section 1): how often a sequence of words is found within or across the tweets of a
hashtag; a tweet goes to the buckets of all its hashtags. Section 9.2 replays 4.3 million tweets of two days through two
threads, which is 25 a second from two sources.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.connectors.contract import BATCH_ROWS
from plait.connectors.synthetic.rates import Ints, as_rates
from plait.connectors.synthetic.words import WORDS, sentences, zipf
from plait.connectors.synthetic.workload import Part, Workload, build, check_count, source_names
from plait.errors import QueryError
from plait.schema import is_number

TAGS: Final = 10_000
USERS: Final = 100_000
#: Tags drawn for a tweet; one drawn twice counts once, so a tweet has 1 to 4.
_FEWEST, _MOST = 2, 4
_WORDS_EACH: Final = 6


def tweets(
    *,
    per_second: float = 25,
    sources: int = 2,
    tags: int = TAGS,
    exponent: float = 1.0,
    seconds: int | None = None,
    rows: int | None = None,
    seed: int = 1,
    batch_rows: int = BATCH_ROWS,
) -> Workload:
    """Make `tweets` <ts, user, text, hashtags, source>, each with several hashtags.

    The tags stand in the text with `#` and in a list without it. They are as popular as Zipf's law has it; those of a tweet are
    distinct.

    Args:
        per_second: Tuples a second of all sources together.
        sources: How many sources there are.
        tags: How many hashtags there are.
        exponent: Of Zipf's law; the larger, the more the first tags have.
        seconds: How long the workload is.
        rows: How many rows there are.
        seed: Another seed gives other rows; the same one always the same.
        batch_rows: Rows in a chunk, at most.

    Returns:
        A `Workload`.

    Raises:
        QueryError: Not exactly one of `seconds` and `rows` is given, or an option has no meaning.

    Example:
        >>> from plait.connectors import synthetic
        >>> made = synthetic.tables(synthetic.tweets(rows=50))["tweets"]
        >>> all(1 <= len(tags) <= 4 for tags in made["hashtags"].to_pylist())
        True
    """
    for option, value in (("sources", sources), ("tags", tags)):
        check_count(option, value)
    if not is_number(exponent):
        raise QueryError(f"exponent={exponent!r} is no number", why="the k-th has weight 1 / k**exponent")

    def columns(random: np.random.Generator, times: Ints) -> list[pa.Array]:
        count = len(times)
        user = random.integers(1, USERS + 1, count, dtype=np.int32)
        drawn = zipf(random, (count, _MOST), tags, exponent)
        kept = np.arange(_MOST) < random.integers(_FEWEST, _MOST + 1, (count, 1))
        for at in range(1, _MOST):
            kept[:, at] &= (drawn[:, at, None] != drawn[:, :at]).all(axis=1)
        ends = pa.array(np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int32))
        names = _names(tags).take(pa.array(drawn[kept]))
        marked = pc.binary_join_element_wise(pa.scalar("#"), names, pa.scalar(""))
        listed = pc.binary_join(pa.ListArray.from_arrays(ends, marked), " ")
        text = pc.binary_join_element_wise(sentences(random, count, _WORDS_EACH), listed, pa.scalar(" "))
        return [pa.array(user), text, pa.ListArray.from_arrays(ends, names)]

    kinds = (("user", pa.int32()), ("text", pa.string()), ("hashtags", pa.list_(pa.string())))
    rates = as_rates([per_second / sources] * sources, "per_second")
    part = Part("tweets", source_names("in", sources), rates, kinds, columns, "source")
    return build("tweets", [part], seconds=seconds, rows=rows, seed=seed, batch_rows=batch_rows)


@lru_cache(maxsize=4)
def _names(tags: int) -> pa.Array:
    return pa.array([f"{WORDS[rank % len(WORDS)]}{rank}" for rank in range(tags)], pa.string())
