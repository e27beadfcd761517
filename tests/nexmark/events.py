"""NEXMark's streams: persons who open auctions, and bids for them. All of it is a function of a seed.

Of 50 events one is a person, three are auctions, the others bids, as in NEXMark. Half of the bids are for one hot auction. An
auction is open for 20 s at most: that is what bounds a join with its bids. Events come in order, every third at the time of the
one before it, so there are ties.
"""

from __future__ import annotations

import random
from typing import Any, Final

import pyarrow as pa

import plait

SECOND: Final = 1_000_000
#: How long an auction is open, at most.
OPEN_US: Final = 20 * SECOND

PERSON: Final = {
    "ts": "timestamp",
    "id": "int64",
    "name": "string",
    "email": "string",
    "city": "string",
    "state": "string",
}
AUCTION: Final = {
    "ts": "timestamp", "id": "int64", "item": "string", "initial": "int64", "reserve": "int64", "expires": "timestamp",
    "seller": "int64", "category": "int64",
}  # fmt: skip
BID: Final = {
    "ts": "timestamp", "auction": "int64", "bidder": "int64", "price": "int64", "channel": "string", "url": "string",
}  # fmt: skip
SIDE: Final = {"ts": "timestamp", "key": "int64", "value": "string"}

person = plait.stream("person", schema=PERSON)
auction = plait.stream("auction", schema=AUCTION)
bid = plait.stream("bid", schema=BID)
side = plait.stream("side", schema=SIDE)
STREAMS: Final = {stream.name: stream for stream in (person, auction, bid, side)}

_CITIES: Final = (("Portland", "OR"), ("Boise", "ID"), ("San Francisco", "CA"), ("Seattle", "WA"), ("Phoenix", "AZ"))
_NAMES: Final = ("Peter Jones", "Paul Smith", "Luke White", "Sarah Abrams", "Kate Noris")
#: Some have a number of their own, which is in the URL; one has none.
_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple", "channel-7", "channel-40", "elsewhere")
#: Two hours meet in the midst of the events: NEXMark's query 14 tells them apart.
_BEGIN: Final = 8 * 3600 * SECOND - 20 * SECOND


def events(count: int, seed: int) -> dict[str, pa.Table]:
    """So many events, as a table a stream; `side` has a value for each last digit of an auction."""
    dice = random.Random(seed)
    found: dict[str, list[dict[str, Any]]] = {"person": [], "auction": [], "bid": []}
    ts = _BEGIN
    for number in range(count):
        ts += dice.choice((0, 20_000, 45_001))
        kind = number % 50
        name, make = ("person", _person) if kind == 0 else ("auction", _auction) if kind < 4 else ("bid", _bid)
        found[name].append({"ts": ts} | make(dice, ts, number // 50, len(found["auction"])))
    made = {name: pa.Table.from_pylist(rows, schema=STREAMS[name].schema) for name, rows in found.items()}
    values = [{"ts": 0, "key": digit, "value": f"side {digit}"} for digit in range(10)]
    return made | {"side": pa.Table.from_pylist(values, schema=side.schema)}


def _person(dice: random.Random, ts: int, epoch: int, auctions: int) -> dict[str, Any]:
    name = dice.choice(_NAMES)
    city, state = dice.choice(_CITIES)
    return {"id": 1000 + epoch, "name": name, "email": f"{name[0]}@{city[:3]}.com", "city": city, "state": state}


def _auction(dice: random.Random, ts: int, epoch: int, auctions: int) -> dict[str, Any]:
    initial = dice.randrange(1, 100)
    return {
        "id": 1000 + auctions,
        "item": f"item {dice.randrange(50)}",
        "initial": initial,
        "reserve": initial + dice.randrange(100),
        "expires": ts + dice.randrange(SECOND, OPEN_US),
        "seller": 1000 + max(0, epoch - dice.randrange(5)),
        "category": 10 + dice.randrange(5),
    }


def _bid(dice: random.Random, ts: int, epoch: int, auctions: int) -> dict[str, Any]:
    last = 1000 + auctions - 1
    hot = last - last % 10
    channel = dice.choice(_CHANNELS)
    price = dice.randrange(100, 10_000_000)
    number = channel.partition("channel-")[2]
    known = f"&channel_id={number}" if number else ""
    return {
        "auction": hot if dice.random() < 0.5 else last - dice.randrange(min(20, auctions)),
        "bidder": 1000 + max(0, epoch - dice.randrange(10)),
        "price": price,
        "channel": channel,
        "url": f"https://www.nexmark.com/{channel.lower()}/c{price % 7}/{price % 3}/item.htm?query=1{known}",
    }
