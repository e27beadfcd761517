"""STRETCH's first example: how often a sequence of words is found, in order, within and across the tweets of a hashtag.

A tweet has several hashtags, so it goes to the buckets of all of them, as one tuple that is copied nowhere.
"""

import zlib

import plait
from plait.connectors import synthetic
from plait.connectors.synthetic.workload import tables

SEQUENCE = ("love", "this", "track")
BUCKETS = 32

made = synthetic.tweets(rows=3_000, tags=40, seed=5)
tweets = plait.stream("tweets", **made.declarations["tweets"])


def bucket(tag):
    return zlib.crc32(tag.encode()) % BUCKETS  # not hash(): that differs from run to run


def state(number):
    """A bucket's number, and its hashtags: tag -> [words of the sequence found so far, sequences found]."""
    return number, {}


def process(state, tweet):
    number, tags = state
    for tag in tweet.hashtags:
        if bucket(tag) != number:
            continue  # a tag of the same tweet that lives in another bucket
        found = tags.setdefault(tag, [0, 0])
        for word in tweet.text.split():
            if word == SEQUENCE[found[0]]:
                found[0] += 1
                if found[0] == len(SEQUENCE):
                    found[0], found[1] = 0, found[1] + 1
                    yield {"hashtag": tag, "times": found[1]}


query = plait.operator(
    tweets,
    buckets=BUCKETS,
    route=lambda tweet: {bucket(tag) for tag in tweet.hashtags},
    state=state,
    process=process,
    output={"hashtag": "string", "times": "int64"},
)


def data():
    return tables(made)
