"""NEXMark's queries: as SQL, in Python, and for DuckDB.

What is endless in NEXMark is bounded here where the data bound it: an auction is open for 20 s at most, so a join of auctions and
their bids looks no further, and the bids of one auction are one session. DuckDB's text gives the result's `ts` first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import sqlglot
from tests.nexmark.events import auction, bid, person, side

import plait


@dataclass(frozen=True)
class Nexmark:
    """One query. `changed` says in what it is another one than NEXMark's."""

    about: str
    sql: str | None  # None: SQL has no words for it
    python: Callable[[], plait.Query]
    duck: str
    changed: str = ""


def windows(size: int, advance: int, table: str) -> str:
    """DuckDB's list of a table's rows, each once for every window that it is in; `s` is the window's start in microseconds."""
    steps = size // advance
    start = f"(epoch_us(ts) // {advance} - i) * {advance}"
    return f"(SELECT *, {start} AS s FROM {table}, range({steps}) w(i) WHERE epoch_us(ts) < {start} + {size})"


S = 1_000_000
#: Bids of an auction while it was open. `wins` has the winning one: the highest, and of equal ones the first.
WHILE_OPEN = """FROM auction a JOIN bid b
    ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 20 SECONDS AND b.ts < a.expires"""


def while_open() -> plait.Query:
    return plait.join(auction, bid, on="auction.id = bid.auction AND bid.ts < auction.expires", within=(0, "20s"))


def winning() -> plait.Query:
    pairs = while_open().select("id", "category", "seller", "price", "bidder").named("offers")
    best = {"price": plait.max("price"), "bidder": plait.arg_max("bidder", "price")}
    return plait.aggregate(pairs, session="20 seconds", by=["id", "category", "seller"], compute=best).select(
        "id", "category", "seller", "price", "bidder"
    )


WINNING = f"""
    WITH offers AS (SELECT a.id, a.category, a.seller, b.price, b.bidder {WHILE_OPEN})
    SELECT id, category, seller, max(price) AS price, max_by(bidder, price) AS bidder
    FROM offers GROUP BY session_window(ts, '20 seconds'), id, category, seller
"""
DUCK_WINNING = f"""
    SELECT make_timestamp(max(epoch_us(b.ts)) + {20 * S - 1}) AS ts, a.id, a.category, a.seller, max(b.price) AS price,
           arg_min(b.bidder, (-b.price, b.ts)) AS bidder
    {WHILE_OPEN} GROUP BY a.id, a.category, a.seller
"""


def hot_items() -> plait.Query:
    counts = plait.aggregate(bid, size="10s", advance="2s", by="auction", compute={"num": plait.count()})
    counts = counts.select("auction", "num", opened="window_start").named("counts")
    most = plait.aggregate(counts, size="2s", by="opened", compute={"num": plait.max("num")})
    most = most.select("opened", "num").named("most")
    return plait.join(counts, most, on="counts.num >= most.num", within=0).select("auction", num="counts_num")


def highest_bid() -> plait.Query:
    best = plait.aggregate(bid, size="10s", compute={"price": plait.max("price")})
    best = best.select("price", opened="window_start", closed="window_end").named("best")
    found = plait.join(
        bid, best, on="bid.price = best.price", within=(0, 9_999_999)
    )  # a window's row has its last microsecond
    return found.select("auction", "bidder", price="bid_price", placed="bid_ts")


def new_users() -> plait.Query:
    persons = plait.aggregate(person, size="10s", by=["id", "name"], compute={"count_1": plait.count()})
    sellers = plait.aggregate(auction, size="10s", by="seller", compute={"count_1": plait.count()})
    persons = persons.select("id", "name", opened="window_start").named("p")
    sellers = sellers.select("seller", opened="window_start").named("a")
    return plait.join(persons, sellers, on="p.id = a.seller", within=0).select("id", "name", opened="p_opened")


def daily() -> plait.Query:
    price = "price"
    compute = {
        "bids": plait.count(),
        "cheap": plait.count(where="price < 10000"),
        "fair": plait.count(where="price >= 10000 AND price < 1000000"),
        "dear": plait.count(where="price >= 1000000"),
        "least": plait.min(price), "most": plait.max(price), "mean": plait.mean(price), "total": plait.sum(price),
    }  # fmt: skip
    return plait.aggregate(bid, size="1 day", by="auction", compute=compute).select("auction", *compute)


def last_prices() -> plait.Query:
    wins = winning().named("wins")
    return plait.aggregate(wins, size=LAST, advance=1, by="seller", compute={"mean": plait.mean("price")}).select(
        "seller", "mean"
    )


#: Of how many of a seller's auctions the mean is taken: NEXMark says ten, and these sellers have fewer.
LAST = 2
#: NEXMark's `count_char(extra, 'c')` is a function of Java's. Bids have no `extra` here.
COUNT_C = "length(url) - length(replace(url, 'c', ''))"
TIME_TYPE = """CASE WHEN hour(ts) >= 8 AND hour(ts) <= 18 THEN 'dayTime' WHEN hour(ts) <= 6 OR hour(ts) >= 20 THEN 'nightTime'
    ELSE 'otherTime' END"""
CHANNEL = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
CHANNEL_ID = f"""CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
    ELSE {CHANNEL} END"""
KNOWN_CHANNEL = f"{CHANNEL} <> '' OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')"


def spark_words(words: str) -> str:
    """An expression as `plait.sql` hands it on: SELECT's own text, written by sqlglot."""
    return sqlglot.parse_one(words, read="spark").sql("spark")


QUERIES: Final = {
    "q0": Nexmark(
        "pass on",
        "SELECT auction, bidder, price FROM bid",
        lambda: bid.select("auction", "bidder", "price"),
        "SELECT ts, auction, bidder, price FROM bid",
    ),
    "q1": Nexmark(
        "another currency",
        "SELECT auction, bidder, 0.908 * price AS price FROM bid",
        lambda: bid.select("auction", "bidder", price="0.908 * price"),
        "SELECT ts, auction, bidder, 0.908::DOUBLE * price AS price FROM bid",
    ),
    "q2": Nexmark(
        "some auctions",
        "SELECT auction, price FROM bid WHERE auction % 123 = 0",
        lambda: bid.where("auction % 123 = 0").select("auction", "price"),
        "SELECT ts, auction, price FROM bid WHERE auction % 123 = 0",
    ),
    "q3": Nexmark(
        "who sells in some states",
        """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p
           ON a.seller = p.id AND p.ts BETWEEN a.ts - INTERVAL 1 MINUTE AND a.ts + INTERVAL 1 MINUTE
           WHERE a.category = 10 AND (p.state = 'OR' OR p.state = 'ID' OR p.state = 'CA')""",
        lambda: plait.join(
            auction.where("category = 10"),
            person.where("state = 'OR' OR state = 'ID' OR state = 'CA'"),
            on="auction.seller = person.id",
            within="1 min",
        ).select("name", "city", "state", id="auction_id"),
        """SELECT greatest(a.ts, p.ts) AS ts, p.name, p.city, p.state, a.id FROM auction a JOIN person p
           ON a.seller = p.id AND p.ts BETWEEN a.ts - INTERVAL 1 MINUTE AND a.ts + INTERVAL 1 MINUTE
           WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
        "a seller is looked for within a minute: NEXMark's join never ends",
    ),
    "q4": Nexmark(
        "mean final price of a category",
        f"""WITH wins AS ({WINNING})
            SELECT category, avg(price) AS mean FROM wins GROUP BY window(ts, '30 seconds'), category""",
        lambda: plait.aggregate(
            winning().named("wins"), size="30s", by="category", compute={"mean": plait.mean("price")}
        ).select("category", "mean"),
        f"""SELECT make_timestamp((epoch_us(ts) // {30 * S} + 1) * {30 * S} - 1) AS ts, category, avg(price) AS mean
            FROM ({DUCK_WINNING}) GROUP BY 1, category""",
        "by windows of 30 s: NEXMark's mean over all that has been is never final",
    ),
    "q5": Nexmark(
        "hot items",
        """WITH counts AS (SELECT auction, count(*) AS num, window.start AS opened FROM bid
                           GROUP BY window(ts, '10 seconds', '2 seconds'), auction),
                most AS (SELECT opened, max(num) AS num FROM counts GROUP BY opened)
           SELECT counts.auction, counts.num FROM counts JOIN most ON counts.opened = most.opened AND counts.num >= most.num""",
        hot_items,
        f"""WITH counts AS (SELECT s, auction, count(*) AS num FROM {windows(10 * S, 2 * S, "bid")} GROUP BY s, auction)
            SELECT make_timestamp(s + {10 * S - 1}) AS ts, auction, num FROM counts
            QUALIFY num = max(num) OVER (PARTITION BY s)""",
    ),
    "q6": Nexmark(
        "mean price of a seller's last ten",
        None,
        last_prices,
        f"""SELECT ts, seller, avg(price) OVER w AS mean FROM ({DUCK_WINNING})
            WINDOW w AS (PARTITION BY seller ORDER BY ts, id ROWS BETWEEN {LAST - 1} PRECEDING AND CURRENT ROW)
            QUALIFY row_number() OVER (PARTITION BY seller ORDER BY ts, id) >= {LAST}""",
        "of the last two, as soon as there are two; by windows of tuples, which SQL has no words for",
    ),
    "q7": Nexmark(
        "the highest bid",
        """SELECT b.auction, b.bidder, b.price, b.ts AS placed FROM bid b
           JOIN (SELECT max(price) AS price, window.start AS opened, window.end AS closed FROM bid
                 GROUP BY window(ts, '10 seconds')) AS best
           ON b.price = best.price AND b.ts >= best.opened AND b.ts < best.closed""",
        highest_bid,
        f"""SELECT make_timestamp((epoch_us(ts) // {10 * S} + 1) * {10 * S} - 1) AS ts, auction, bidder, price, ts AS placed
            FROM bid QUALIFY price = max(price) OVER (PARTITION BY epoch_us(ts) // {10 * S})""",
    ),
    "q8": Nexmark(
        "new users who sell",
        """SELECT p.id, p.name, p.opened
           FROM (SELECT id, name, window.start AS opened FROM person GROUP BY window(ts, '10 seconds'), id, name) AS p
           JOIN (SELECT seller, window.start AS opened FROM auction GROUP BY window(ts, '10 seconds'), seller) AS a
           ON p.id = a.seller AND p.opened = a.opened""",
        new_users,
        f"""SELECT DISTINCT make_timestamp((epoch_us(p.ts) // {10 * S} + 1) * {10 * S} - 1) AS ts, p.id, p.name,
                   make_timestamp(epoch_us(p.ts) // {10 * S} * {10 * S}) AS opened
            FROM person p JOIN auction a ON p.id = a.seller AND epoch_us(p.ts) // {10 * S} = epoch_us(a.ts) // {10 * S}""",
    ),
    "q9": Nexmark(
        "winning bids",
        WINNING,
        winning,
        DUCK_WINNING,
        "an auction's bids are one session of at most 20 s: NEXMark ranks an auction's bids for ever",
    ),
    "q11": Nexmark(
        "a user's sessions",
        """SELECT bidder, count(*) AS bids, session_window.start AS opened, session_window.end AS closed
           FROM bid GROUP BY session_window(ts, '10 seconds'), bidder""",
        lambda: plait.aggregate(bid, session="10 seconds", by="bidder", compute={"bids": plait.count()}).select(
            "bidder", "bids", opened="window_start", closed="window_end"
        ),
        f"""WITH marked AS (SELECT *, epoch_us(ts) - lag(epoch_us(ts)) OVER w >= {10 * S} AS breaks FROM bid
                            WINDOW w AS (PARTITION BY bidder ORDER BY ts)),
                 numbered AS (SELECT *, count(*) FILTER (WHERE breaks) OVER (PARTITION BY bidder ORDER BY ts) AS no FROM marked)
            SELECT make_timestamp(max(epoch_us(ts)) + {10 * S - 1}) AS ts, bidder, count(*) AS bids, min(ts) AS opened,
                   make_timestamp(max(epoch_us(ts)) + {10 * S}) AS closed
            FROM numbered GROUP BY bidder, no""",
    ),
    "q12": Nexmark(
        "a user's bids in a window",
        "SELECT bidder, count(*) AS bids, window.start AS opened FROM bid GROUP BY window(ts, '10 seconds'), bidder",
        lambda: plait.aggregate(bid, size="10s", by="bidder", compute={"bids": plait.count()}).select(
            "bidder", "bids", opened="window_start"
        ),
        f"""SELECT make_timestamp((epoch_us(ts) // {10 * S} + 1) * {10 * S} - 1) AS ts, bidder, count(*) AS bids,
                   make_timestamp(epoch_us(ts) // {10 * S} * {10 * S}) AS opened FROM bid GROUP BY 1, bidder, 4""",
        "by windows of event time: NEXMark's are of the wall clock, and give other rows on every run",
    ),
    "q13": Nexmark(
        "a side input",
        """WITH keyed AS (SELECT ts, auction, bidder, price, auction % 10 AS key FROM bid)
           SELECT k.auction, k.bidder, k.price, s.value
           FROM keyed k ASOF JOIN side s MATCH_CONDITION (k.ts >= s.ts) ON k.key = s.key""",
        lambda: plait.asof(
            bid.select("ts", "auction", "bidder", "price", key="auction % 10").named("keyed"), side, by="key"
        ).select("auction", "bidder", "price", "value"),
        """SELECT b.ts, b.auction, b.bidder, b.price, s.value FROM bid b
           ASOF LEFT JOIN side s ON b.auction % 10 = s.key AND b.ts >= s.ts""",
        "the side input is looked up by event time: NEXMark looks it up when the row happens to be processed",
    ),
    "q14": Nexmark(
        "a calculation",
        f"""SELECT auction, bidder, 0.908 * price AS price, {TIME_TYPE} AS time_type, {COUNT_C} AS c_counts FROM bid
            WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
        lambda: bid.where("0.908 * price > 1000000 AND 0.908 * price < 50000000").select(
            "auction", "bidder", price="0.908 * price", time_type=spark_words(TIME_TYPE), c_counts=spark_words(COUNT_C)
        ),
        f"""SELECT ts, auction, bidder, 0.908::DOUBLE * price, {TIME_TYPE}, {COUNT_C} FROM bid
            WHERE 0.908::DOUBLE * price > 1000000 AND 0.908::DOUBLE * price < 50000000""",
        "counts a letter of the URL by `replace`: NEXMark does it in Java, of a column that is not here",
    ),
    "q17": Nexmark(
        "an auction's day",
        """SELECT auction, count(*) AS bids, count(*) FILTER (WHERE price < 10000) AS cheap,
                  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS fair,
                  count(*) FILTER (WHERE price >= 1000000) AS dear,
                  min(price) AS least, max(price) AS most, avg(price) AS mean, sum(price) AS total
           FROM bid GROUP BY window(ts, '1 day'), auction""",
        daily,
        """SELECT TIMESTAMP '1970-01-01 23:59:59.999999' AS ts, auction, count(*), count(*) FILTER (WHERE price < 10000),
                  count(*) FILTER (WHERE price >= 10000 AND price < 1000000), count(*) FILTER (WHERE price >= 1000000),
                  min(price), max(price), avg(price), sum(price) FROM bid GROUP BY auction""",
        "a day's row comes when the day has ended: NEXMark's is updated with each bid",
    ),
    "q18": Nexmark(
        "a bidder's last bid",
        """SELECT bidder, auction, last(price) AS price, last(channel) AS channel FROM bid
           GROUP BY window(ts, '10 seconds'), bidder, auction""",
        lambda: plait.aggregate(
            bid,
            size="10s",
            by=["bidder", "auction"],
            compute={"price": plait.last("price"), "channel": plait.last("channel")},
        ).select("bidder", "auction", "price", "channel"),
        f"""SELECT make_timestamp((epoch_us(ts) // {10 * S} + 1) * {10 * S} - 1) AS ts, bidder, auction, price, channel
            FROM numbered
            QUALIFY row_number() OVER (PARTITION BY bidder, auction, epoch_us(ts) // {10 * S} ORDER BY ts DESC, no DESC) = 1""",
        "of each window of 10 s: NEXMark's last one may always be followed by another",
    ),
    "q19": Nexmark(
        "an auction's ten highest bids",
        "SELECT auction, max_by(price, price, 10) AS prices FROM bid GROUP BY window(ts, '10 seconds'), auction",
        lambda: plait.aggregate(
            bid, size="10s", by="auction", compute={"prices": plait.top("price", 10, "price")}
        ).select("auction", "prices"),
        f"""SELECT make_timestamp((epoch_us(ts) // {10 * S} + 1) * {10 * S} - 1) AS ts, auction, max(price, 10) AS prices
            FROM bid GROUP BY 1, auction""",
        "of each window of 10 s, as a list: NEXMark ranks an auction's bids for ever, a row a bid",
    ),
    "q20": Nexmark(
        "bids with their auction",
        f"""SELECT b.auction, b.bidder, b.price, a.item, a.seller {WHILE_OPEN} WHERE a.category = 10""",
        lambda: plait.join(
            auction.where("category = 10"),
            bid,
            on="auction.id = bid.auction AND bid.ts < auction.expires",
            within=(0, "20s"),
        ).select("auction", "bidder", "price", "item", "seller"),
        f"SELECT b.ts, b.auction, b.bidder, b.price, a.item, a.seller {WHILE_OPEN} WHERE a.category = 10",
        "bids while the auction was open: NEXMark's join never ends",
    ),
    "q21": Nexmark(
        "a channel's id",
        f"SELECT auction, bidder, price, channel, {CHANNEL_ID} AS channel_id FROM bid WHERE {KNOWN_CHANNEL}",
        lambda: bid.where(spark_words(KNOWN_CHANNEL)).select(
            "auction", "bidder", "price", "channel", channel_id=spark_words(CHANNEL_ID)
        ),
        f"SELECT ts, auction, bidder, price, channel, {CHANNEL_ID} AS channel_id FROM bid WHERE {KNOWN_CHANNEL}",
        "without a match regexp_extract gives '', as Spark's: NEXMark asks for NULL",
    ),
    "q22": Nexmark(
        "parts of a URL",
        """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
                  split_part(url, '/', 6) AS dir3 FROM bid""",
        lambda: bid.select(
            "auction",
            "bidder",
            "price",
            "channel",
            dir1="SPLIT_PART(url, '/', 4)",
            dir2="SPLIT_PART(url, '/', 5)",
            dir3="SPLIT_PART(url, '/', 6)",
        ),
        """SELECT ts, auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), split_part(url, '/', 6)
           FROM bid""",
    ),
}

#: Queries that are not there, and why.
MISSING: Final[dict[str, str]] = {}
