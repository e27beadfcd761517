"""Comments on songs: 40,000 songs with Zipf popularity; some comments hold a mail or an IP address.

After multiway-aggregation.txt, section 7.1: dataset SC (SoundCloud: <ts, user, song, cmt>, about 40,000 users), with
table 2's 40,000 distinct songs as keys and its costly functions first-mail, first-mail/IP, count-mail, count-mail/IP.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.connectors.contract import BATCH_ROWS
from plait.connectors.synthetic.rates import Ints, as_rates
from plait.connectors.synthetic.words import sentences, zipf
from plait.connectors.synthetic.workload import Part, Workload, build, check_count, source_names
from plait.errors import QueryError
from plait.schema import is_number

SONGS: Final = 40_000
USERS: Final = 40_000
_WORDS_EACH: Final = 8
_DOMAINS: Final = ("example.org", "mail.example.com", "songs.example.net")


def songs(
    *,
    per_second: float = 1_000,
    sources: int = 4,
    songs: int = SONGS,
    exponent: float = 1.0,
    mail: float = 0.02,
    ip: float = 0.01,
    seconds: int | None = None,
    rows: int | None = None,
    seed: int = 1,
    batch_rows: int = BATCH_ROWS,
) -> Workload:
    """Make `comments` <ts, user, song, cmt, source> on songs.

    Song 1 is the most popular; the k-th has weight 1 / k**exponent.

    Args:
        per_second: Tuples a second of all sources together.
        sources: How many sources there are.
        songs: How many songs there are.
        exponent: Of Zipf's law; the larger, the more the first songs have.
        mail: The share of comments that hold a mail address.
        ip: The share of comments that hold an IP address.
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
        >>> comments = synthetic.tables(synthetic.songs(rows=100, mail=1, ip=0))["comments"]
        >>> all("@" in text for text in comments["cmt"].to_pylist())
        True
    """
    for option, value in (("sources", sources), ("songs", songs)):
        check_count(option, value)
    if not is_number(exponent):
        raise QueryError(f"exponent={exponent!r} is no number", why="the k-th has weight 1 / k**exponent")
    if not (is_number(mail) and is_number(ip) and mail >= 0 and ip >= 0 and mail + ip <= 1):
        raise QueryError(
            f"mail={mail!r} and ip={ip!r}", why="they are shares of all comments", do="Keep mail + ip <= 1"
        )

    def comments(random: np.random.Generator, times: Ints) -> list[pa.Array]:
        count = len(times)
        song = zipf(random, count, songs, exponent).astype(np.int32) + np.int32(1)
        user = random.integers(1, USERS + 1, count, dtype=np.int32)
        text = _with_addresses(random, sentences(random, count, _WORDS_EACH), mail, ip)
        return [pa.array(user), pa.array(song), text]

    columns = (("user", pa.int32()), ("song", pa.int32()), ("cmt", pa.string()))
    rates = as_rates([per_second / sources] * sources, "per_second")
    part = Part("comments", source_names("in", sources), rates, columns, comments, "source")
    return build("songs", [part], seconds=seconds, rows=rows, seed=seed, batch_rows=batch_rows)


def _with_addresses(random: np.random.Generator, text: pa.Array, mail: float, ip: float) -> pa.Array:
    """A tail for some of the comments."""
    draw = random.random(len(text))
    numbers = random.integers(0, 256, (len(text), 4))
    tails = []
    chosen = draw < mail + ip
    for at in np.flatnonzero(chosen):
        a, b, c, d = (int(n) for n in numbers[at])
        is_mail = draw[at] < mail
        tails.append(f" write to user{a}.{b}@{_DOMAINS[c % 3]}" if is_mail else f" mirror at 10.{b}.{c}.{d}")
    tail = pc.replace_with_mask(
        pa.array([""], pa.string()).take(pa.array(np.zeros(len(text), np.int64))), chosen, pa.array(tails, pa.string())
    )
    return pc.binary_join_element_wise(text, tail, pa.scalar(""))
