"""The workloads are what the papers say, the same every time, and the same however they are read."""

import hashlib
import itertools
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from plait.connectors import synthetic
from plait.connectors.memory import feed as memory_feed
from plait.connectors.synthetic import Constant, Peaks, Sinusoid, tables, workload
from plait.connectors.synthetic.blocks import BLOCK_ROWS, EPOCH_US, Source, recut
from plait.connectors.synthetic.rates import before, row_counts, second_of
from plait.connectors.synthetic.words import zipf_edges
from plait.query.stream import stream

ALL = list(synthetic.WORKLOADS)


def rows_of(work):
    return {
        (name, lane.source): pa.Table.from_batches([c.batch for c in lane.read()], feed.schema)
        for name, feed in work.feeds.items()
        for lane in feed.lanes
    }


def times(table):
    return table["ts"].cast(pa.int64()).to_numpy()


def per_second(table, seconds):
    return np.bincount((times(table) - EPOCH_US) // 1_000_000, minlength=seconds)


# --- reproducible -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_the_same_rows_at_any_batch_size(name):
    whole = rows_of(workload(name, rows=40_000))
    small = rows_of(workload(name, rows=40_000, batch_rows=1_000))
    assert whole.keys() == small.keys()
    assert all(whole[key].equals(small[key]) for key in whole)
    odd = rows_of(workload(name, rows=40_000, batch_rows=777))
    assert all(whole[key].equals(odd[key]) for key in whole)


@pytest.mark.parametrize("name", ALL)
def test_another_seed_gives_other_rows(name):
    one, two = rows_of(workload(name, rows=5_000)), rows_of(workload(name, rows=5_000, seed=2))
    for key in one:
        assert not one[key].equals(two[key])
        assert one[key].num_rows == two[key].num_rows


def test_sources_and_streams_do_not_repeat_each_other():
    rows = list(rows_of(synthetic.energy(rows=4_000, alarms_per_second=1_000)).values())
    for a, b in itertools.combinations(rows, 2):
        count = min(len(a), len(b))
        assert a["meter"].to_pylist()[:count] != b["meter"].to_pylist()[:count]


@pytest.mark.parametrize("name", ALL)
def test_a_longer_workload_begins_with_the_shorter(name):
    short, long = rows_of(workload(name, seconds=3)), rows_of(workload(name, seconds=20))
    for key, table in short.items():
        assert long[key].slice(0, table.num_rows).equals(table)


def test_any_block_by_itself():
    made = []

    def make(random, at):
        made.append(len(at))
        return [pa.array(random.integers(0, 1000, len(at)))]

    schema = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
    source = Source("s", "a", Sinusoid(500, 400, 60), 5 * BLOCK_ROWS + 10, 7, schema, make, named=False)
    whole = pa.Table.from_batches([c.batch for c in source.lane(65_536).read()])
    made.clear()
    assert source.block(3).equals(whole.slice(3 * BLOCK_ROWS, BLOCK_ROWS).combine_chunks().to_batches()[0])
    assert source.block(5).num_rows == 10
    assert len(made) == 2  # no block before it was made


def test_rows_that_were_published_stay_as_they_are():
    """If this fails, every benchmark and recorded result over these workloads has changed: say so in the changelog."""
    digest = hashlib.sha256()
    for name in ALL:
        for key, table in rows_of(workload(name, rows=2_000, seed=42)).items():
            digest.update(repr((name, key, table.to_pydict())).encode())
    assert digest.hexdigest()[:16] == "d90606ebbd2457df"


def test_lanes_start_again_and_come_in_batches():
    lane = synthetic.band_join(rows=200_000, batch_rows=30_000).feeds["stream_r"].lanes[0]
    first, second = ([(c.first_row, c.batch.num_rows) for c in lane.read()] for _ in range(2))
    assert first == second == [(0, 30_000), (30_000, 30_000), (60_000, 30_000), (90_000, 10_000)]


@pytest.mark.parametrize("rows", [1, 3, 4, 10, 100])
def test_recut(rows):
    whole = pa.record_batch({"a": range(14)})
    batches = [whole.slice(start, size) for start, size in ((0, 3), (3, 0), (3, 7), (10, 4))]
    cut = list(recut(iter(batches), rows))
    assert [v for b in cut for v in b["a"].to_pylist()] == list(range(14))
    assert all(b.num_rows == rows for b in cut[:-1])
    assert list(recut(iter([]), rows)) == []


# --- declarations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_declarations_fit_the_feeds(name):
    work = workload(name, seconds=5)
    assert work.name == name
    for stream_name, declared in work.declarations.items():
        given = work.feeds[stream_name]
        declaration = stream(stream_name, **declared)
        declaration.check(given.schema)
        assert given.rows == sum(c.batch.num_rows for lane in given.lanes for c in lane.read())
        if declaration.source is None:
            assert [lane.source for lane in given.lanes] == [0]
            continue
        assert declaration.declared() == tuple(lane.source for lane in given.lanes)
        assert list(declaration.sources) == sorted(declaration.sources, key=str.encode)
        for lane in given.lanes:
            assert {v for c in lane.read() for v in c.batch[declaration.source].to_pylist()} == {lane.source}


@pytest.mark.parametrize("name", ALL)
def test_time_never_runs_back_in_a_source_and_is_never_zero(name):
    for table in rows_of(workload(name, rows=30_000)).values():
        at = times(table)
        assert at.min() >= EPOCH_US
        assert (np.diff(at) >= 0).all()
        assert table.schema.field("ts").type == pa.timestamp("us", tz="UTC")


def test_tables_merge_the_sources_by_time():
    work = synthetic.scalejoin_peaks(seconds=30)
    whole = tables(work)
    for name, table in whole.items():
        assert (np.diff(times(table)) >= 0).all()
        for lane in work.feeds[name].lanes:
            one = pa.Table.from_batches([c.batch for c in lane.read()])
            assert table.filter(pc.equal(table["source"], lane.source)).equals(one)
        declared = stream(name, **work.declarations[name])
        assert memory_feed(declared, table).rows == work.feeds[name].rows


# --- rates --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rate", [Constant(1000), Constant(0.3), Sinusoid(100, 100, 30, 0.25), Peaks(10, 90, 20, 3, 5), Peaks(0, 50, 10, 1)]
)
def test_a_row_is_sent_in_the_second_that_counts_it(rate):
    edges = rate.before(np.arange(400))
    assert edges[0] == 0
    assert (np.diff(edges) >= 0).all()
    for row in range(0, int(edges[300]), max(1, int(edges[300]) // 50)):
        second = second_of(rate, row)
        assert before(rate, second) <= row < before(rate, second + 1)


def test_shapes_of_rates():
    rates = [Constant(100), Sinusoid(100, 80, 40), Peaks(50, 500, 30, 4, 10)]
    work = synthetic.band_join(left=rates, right=2.5, seconds=120)
    flat, wave, peaks = (per_second(table, 120) for (name, _), table in rows_of(work).items() if name == "stream_r")
    assert (flat == 100).all()
    t = np.arange(120) + 0.5
    assert np.abs(wave - (100 + 80 * np.sin(2 * np.pi * t / 40))).max() < 2
    assert (peaks == np.where((np.arange(120) >= 10) & ((np.arange(120) - 10) % 30 < 4), 500, 50)).all()
    assert work.feeds["stream_s"].rows == 300


def test_tuples_are_spread_over_their_second():
    at = times(rows_of(synthetic.band_join(rows=40_000))["stream_r", 0])
    gaps = np.diff(at)
    assert 900 < gaps.mean() < 1_100
    assert gaps.std() > 300  # not a metronome


def test_rows_are_shared_out_as_the_rates_have_it():
    rates = [Constant(1), Constant(10), Constant(100)]
    for rows in (0, 1, 5, 110, 111, 112, 1_000, 12_345):
        counts = row_counts(rates, None, rows)
        assert sum(counts) == rows
        assert all(
            abs(count - rows * r.per_second / 111) <= r.per_second for count, r in zip(counts, rates, strict=True)
        )
    assert row_counts(rates, 7, None) == [7, 70, 700]
    assert row_counts([Peaks(0, 1, 10, 1, 5)], None, 3) == [3]


# --- what the papers say ------------------------------------------------------------------------------------


def test_the_band_join_is_the_papers():
    work = synthetic.band_join(rows=100_000)
    r, s = (tables(work)[name] for name in ("stream_r", "stream_s"))
    assert r.schema.remove(0) == pa.schema({"x": pa.int32(), "y": pa.float32(), "z": pa.string()})
    assert s.schema.remove(0) == pa.schema({"a": pa.int32(), "b": pa.float32(), "c": pa.float64(), "d": pa.bool_()})
    assert set(pc.utf8_length(r["z"]).to_pylist()) == {20}
    for column in (r["x"], r["y"], s["a"], s["b"], s["c"]):
        values = column.to_numpy()
        assert 1 <= values.min() < 5
        assert 9_995 < values.max() <= 10_000
        assert abs(values.mean() - 5_000) < 60
    assert 0.48 < np.mean(s["d"].to_numpy()) < 0.52
    assert r["z"].combine_chunks().dictionary_encode().dictionary.__len__() == r.num_rows
    # One comparison in 250,000 gives a result: here among 4,000 x 50,000 pairs, 5,000 of them at a time.
    x, y = (r[name].to_numpy()[:4_000, None] for name in "xy")
    hits = 0
    for at in range(0, 50_000, 5_000):
        a, b = (s[name].to_numpy()[at : at + 5_000] for name in "ab")
        hits += int(((np.abs(x - a) <= 10) & (np.abs(y - b) <= 10)).sum())
    assert 600 < hits < 1_050  # 840 expected for whole x: 21 of 10,000 and 20 of 9,999


def test_constant_distinct_rates():
    work = synthetic.scalejoin_constant(seconds=10)
    rows = {key: table.num_rows / 10 for key, table in rows_of(work).items()}
    left = [rate for (name, _), rate in rows.items() if name == "stream_r"]
    right = [rate for (name, _), rate in rows.items() if name == "stream_s"]
    assert left == [1_200]
    assert len(right) == len(set(right)) == 4
    assert sum(right) == 900
    assert 2 * 300 * sum(left) * sum(right) / 10 == pytest.approx(65e6, rel=0.01)  # comparisons a second and thread


def test_fluctuating_rates_give_the_papers_load():
    """18.5 to 55 million comparisons a second on each of 12 threads, with windows of 5 minutes."""
    seconds = 1_500
    work = synthetic.scalejoin_fluctuating(seconds=seconds)
    assert [len(feed.lanes) for feed in work.feeds.values()] == [3, 2]
    r, s = (per_second(table.select(["ts"]), seconds) for table in tables(work).values())
    window = [np.convolve(rate, np.ones(300, dtype=np.int64))[:seconds] for rate in (r, s)]
    load = (r * window[1] + s * window[0])[300:] / 12
    assert load.min() == pytest.approx(18.5e6, rel=0.1)
    assert load.max() == pytest.approx(55e6, rel=0.1)


def test_peaks_are_sudden():
    work = synthetic.scalejoin_peaks(seconds=100)
    assert [len(feed.lanes) for feed in work.feeds.values()] == [4, 2]
    peaking = [t for t in rows_of(work).values() if (r := per_second(t, 100)).max() == 4 * r.min()]
    assert len(peaking) == 4


def test_asymmetric_streams():
    work = synthetic.dpjoin_asymmetric(seconds=2)
    assert {name: feed.rows for name, feed in work.feeds.items()} == {"stream_r": 2_000, "stream_s": 6_000}


def test_energy_meters_report_through_any_concentrator():
    work = tables(synthetic.energy(seconds=60))
    readings, alarms = work["readings"], work["alarms"]
    assert readings.schema.names == ["ts", "meter", "cons", "concentrator"]
    assert alarms.schema.names == ["ts", "meter", "concentrator"]
    assert sorted(set(readings["meter"].to_pylist())) == list(range(1, 244))
    pairs = set(zip(readings["meter"].to_pylist(), readings["concentrator"].to_pylist(), strict=True))
    assert len(pairs) == 243 * 4
    assert pc.min(readings["cons"]).as_py() > 0
    assert (readings.num_rows, alarms.num_rows) == (60_000, 600)


def test_songs_are_popular_as_zipf_has_it():
    comments = tables(synthetic.songs(rows=200_000))["comments"]
    assert comments.schema.names == ["ts", "user", "song", "cmt", "source"]
    counts = np.bincount(comments["song"].to_numpy(), minlength=40_001)[1:]
    assert counts.sum() == 200_000
    total = (1 / np.arange(1, 40_001)).sum()
    for rank in (1, 2, 5, 10, 100):
        assert counts[rank - 1] == pytest.approx(200_000 / rank / total, rel=0.15)
    assert counts[20_000:].sum() > 0
    assert zipf_edges(40_000, 1.0)[-1] == 1.0


def test_some_comments_hold_addresses():
    comments = tables(synthetic.songs(rows=50_000))["comments"]["cmt"].to_pylist()
    mail = sum(bool(re.search(r"\b[\w.]+@[\w.]+\.\w+\b", text)) for text in comments) / 50_000
    ip = sum(bool(re.search(r"\b(?:\d{1,3}\.){3}\d{1,3}\b", text)) for text in comments) / 50_000
    assert mail == pytest.approx(0.02, rel=0.15)
    assert ip == pytest.approx(0.01, rel=0.2)
    none = tables(synthetic.songs(rows=5_000, mail=0, ip=0))["comments"]["cmt"].to_pylist()
    assert not any("@" in text or "." in text for text in none)


def test_tweets_have_several_hashtags():
    tweets = tables(synthetic.tweets(rows=20_000))["tweets"]
    assert tweets.schema.field("hashtags").type == pa.list_(pa.string())
    for text, tags in zip(tweets["text"].to_pylist(), tweets["hashtags"].to_pylist(), strict=True):
        assert re.findall(r"#(\w+)", text) == tags
        assert len(set(tags)) == len(tags)
        assert 1 <= len(tags) <= 4
    sizes = np.bincount(pc.list_value_length(tweets["hashtags"]).to_numpy())
    assert (sizes[2:5] > 3_000).all()
    assert synthetic.tweets(seconds=172_800).feeds["tweets"].rows == pytest.approx(4.3e6, rel=0.01)


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "part"),
    [
        (lambda: workload("nonsense", rows=1), "There is no workload 'nonsense'. Use one of band_join, "),
        (lambda: workload("energy", size=1), "Workload 'energy' has no option 'size'. It has readings_per_second, "),
        (lambda: synthetic.songs(), "seconds=None and rows=None. One of the two says how long"),
        (lambda: synthetic.songs(seconds=1, rows=1), "seconds=1 and rows=1. One of the two"),
        (lambda: synthetic.songs(seconds=-1), "A workload of size -1"),
        (lambda: synthetic.songs(rows=1.5), "A workload of size 1.5"),
        (lambda: synthetic.songs(rows=1, seed=-1), "seed=-1"),
        (lambda: synthetic.songs(rows=1, batch_rows=0), "batch_rows=0"),
        (lambda: synthetic.songs(rows=1, sources=0), "sources=0"),
        (lambda: synthetic.songs(rows=1, mail=0.9, ip=0.2), "mail=0.9 and ip=0.2"),
        (lambda: synthetic.songs(rows=1, mail="few"), "mail='few'"),
        (lambda: synthetic.songs(rows=1, batch_rows="many"), "batch_rows='many'"),
        (lambda: synthetic.songs(rows=1, exponent="steep"), "exponent='steep' is no number"),
        (lambda: synthetic.tweets(rows=1, exponent="steep"), "exponent='steep' is no number"),
        (lambda: synthetic.energy(rows=1, concentrators="x"), "concentrators='x'. It is a whole number"),
        (lambda: Sinusoid(10, "wide", 60), "amplitude is no number"),
        (lambda: synthetic.tweets(rows=1, tags=0), "tags=0"),
        (lambda: synthetic.energy(rows=1, meters=0), "meters=0"),
        (lambda: synthetic.band_join(left=[], rows=1), "left=[] gives no source a rate"),
        (lambda: synthetic.band_join(left="fast", rows=1), "is no rate"),
        (lambda: synthetic.band_join(left=0, rows=1), "Constant(per_second=0) sends 0 tuples a second"),
        (lambda: Sinusoid(10, 11, 60), "amplitude does not fit"),
        (lambda: Sinusoid(10, 5, 0), "period_s does not fit"),
        (lambda: Peaks(1, 2, 5, 6), "lasting_s does not fit"),
        (lambda: Peaks(-1, 20, 5, 5), "base does not fit"),
    ],
)
def test_refusals(call, part, refusal):
    assert part.lower() in refusal(call).lower()
