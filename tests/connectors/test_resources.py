"""Memory that does not follow the size of the data, and imports that do not follow what is not used."""

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from plait.connectors import open_sink

#: Streams what argv names and prints how far the peak of resident memory rose above the start, in MiB, and the rows.
STREAM = """
    import sys
    import pyarrow as pa
    from plait.connectors import folder, synthetic
    from plait.query.stream import stream
    pa.set_memory_pool(pa.system_memory_pool())  # gives memory back, so that the peak is what is held

    def peak():  # not `ru_maxrss`, which a process inherits from the one that started it
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

    def drain(feed):
        return sum(c.batch.num_rows for lane in feed.lanes for c in lane.read())

    declared = stream("q")
    drain(folder.feed(declared, sys.argv[1]))  # a small one first: code, buffers and pools
    drain(synthetic.band_join(rows=100_000).feeds["stream_r"])
    before = peak()
    {body}
    print(peak() - before, rows)
"""


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc to measure memory")


def growth(body: str, *args: object) -> tuple[float, int]:
    code = textwrap.dedent(STREAM).replace("{body}", body)
    run = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    mib, rows = run.stdout.split()
    return float(mib), int(rows)


def csv_rows(rows: int) -> str:
    row = "2024-01-01T00:00:00.{:06}Z,{},some text that takes a little room in every row,{}.5\n"
    return "".join(row.format(i, i, i) for i in range(rows))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    (folder / "a.csv").write_text("ts,n,text,x\n" + csv_rows(40_000))
    return folder


def large_file(folder: Path, format: str) -> int:
    """One file whose rows take more than 100 MB in memory, and how many they are."""
    if format == "parquet":
        values = np.random.default_rng(1).integers(0, 2**62, 4_000_000)
        pq.write_table(pa.table({"ts": values, "a": values, "b": values, "c": values}), folder / "0.parquet")
        return 4_000_000
    if format == "csv":
        (folder / "0.csv").write_text("ts,n,text,x\n" + csv_rows(40_000) * 30)
        return 1_200_000
    rows = "".join(f'{{"ts":{i},"text":"{"some text " * 24}"}}\n' for i in range(20_000))
    (folder / "0.jsonl").write_text(rows * 20)
    return 400_000


@needs_proc
@pytest.mark.parametrize(("format", "times", "bound"), [("csv", 3, 50), ("jsonl", 1, 50), ("parquet", 2, 90)])
def test_a_large_folder_streams_in_constant_memory(small, tmp_path, format, times, bound):
    rows = large_file(tmp_path, format)
    for at in range(1, times):  # links are files: more data at no cost
        (tmp_path / f"{at}.{format}").symlink_to(tmp_path / f"0.{format}")
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) > times * 100e6
    mib, found = growth("rows = drain(folder.feed(declared, sys.argv[2]))", small, tmp_path)
    assert found == times * rows
    assert mib < bound


@needs_proc
def test_a_large_workload_streams_in_constant_memory(small):
    mib, rows = growth("rows = drain(synthetic.band_join(rows=10_000_000).feeds['stream_r'])", small)
    assert rows == 5_000_000
    assert mib < 50


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_sink_writes_as_it_goes(tmp_path, ending):
    batch = pa.record_batch({"ts": np.random.default_rng(1).integers(0, 2**62, 70_000)})
    sink = open_sink(tmp_path / f"o.{ending}", batch.schema)
    sizes = []
    for _ in range(6):
        sink.write(batch)
        sizes.append(sum(f.stat().st_size for f in tmp_path.iterdir()))
    sink.abort()
    assert sizes[1] > 0.5e6
    assert sizes[5] > 2 * sizes[1]


def test_connectors_do_not_load_pandas():
    code = (
        "import sys, plait.connectors, plait.connectors.folder, plait.connectors.memory, plait.connectors.synthetic\n"
        "plait.connectors.write_folder, plait.connectors.open_sink\n"
        "sys.exit('pandas' in sys.modules or 'pyspark' in sys.modules or 'numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_connectors_load_nothing_before_it_is_asked_for():
    code = (
        "import sys, plait.connectors as c\n"
        "assert 'pyarrow.parquet' not in sys.modules and 'pyarrow.csv' not in sys.modules\n"
        "c.open_sink\n"
        "assert 'pyarrow.parquet' in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_is_an_attribute_error():
    import plait.connectors

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = plait.connectors.nonsense
