import functools
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tests.crossed import left_to_the_soak
from tests.examples import SOAK, examples

from plait import java

# No deadlines and no complaint about slow generation: a busy machine is not a failing test.
settings.register_profile(
    "plait", max_examples=examples(100), deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
# In CI the same examples every time; a failure found elsewhere is replayed from the blob it printed. A soak
# is there to find others.
settings.register_profile("plait-ci", settings.get_profile("plait"), derandomize=True)
settings.load_profile("plait-ci" if os.environ.get("CI") == "true" and not SOAK else "plait")


# Every JVM that a test starts lives for minutes and sees a handful of rows: its second compiler and its parallel collector
# would take half of the suite's time, and change nothing that a test could see. Through the environment, since many are
# started by processes of their own; a user's own words come last, and win.
QUICK_JAVA = "-XX:TieredStopAtLevel=1"
# With one compiler there is so little room for machine code that a thread does nothing but make some; and Spark's classes have
# been verified often enough.
QUICK_JAVA += " -XX:ReservedCodeCacheSize=240m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
OWN_JAVA = os.environ.get("SPARK_SUBMIT_OPTS", "")
if "GC" not in OWN_JAVA:  # a JVM takes one collector only
    QUICK_JAVA += " -XX:+UseSerialGC"
os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JAVA} {OWN_JAVA}".strip()

# What somebody has measured on this machine changes how runs are planned, and what `explain` says. Tests have their own, or none.
os.environ["PLAIT_CALIBRATION"] = ""

java_missing = functools.cache(java.missing)


def has_spark() -> bool:
    """Whether this process has a JVM for Spark, which it keeps to its end."""
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._gateway is not None


@contextmanager
def sessions_asked_for() -> Iterator[list[str]]:
    """Who asks for a session of Spark meanwhile, also where there is one already: no worker's order of tests hides it."""
    asked: list[str] = []
    before = has_spark()
    with pytest.MonkeyPatch.context() as patch:
        if (sql := sys.modules.get("pyspark.sql")) is not None:
            as_it_is = sql.SparkSession.Builder.getOrCreate

            def noted(builder: Any) -> Any:
                asked.append("a session")
                return as_it_is(builder)

            patch.setattr(sql.SparkSession.Builder, "getOrCreate", noted)
        yield asked
    if not before and has_spark():  # pyspark itself was imported only now
        asked.append("a JVM")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # Skipped from one place, not by a marker on each test: the summary then shows one line for all of them.
    if item.get_closest_marker("spark") and (reason := java_missing()):
        pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    # Without its mark it runs in any worker, and each that it comes to starts a JVM (20 s of processor time).
    if pyfuncitem.get_closest_marker("spark"):
        return (yield)
    with sessions_asked_for() as asked:
        result = yield
    if asked:
        pytest.fail("It starts Spark: mark it `spark`, or name another engine", pytrace=False)
    return result


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    # A listener of Python's has every micro-batch's progress translated to Python, for as long as the session lives: one test
    # that drops rows would slow all that follow.
    if item.get_closest_marker("spark") and (aside := sys.modules.get("plait.spark.publish.aside")) and aside.listening:
        while aside.listening:
            session, listener = aside.listening.popitem()
            session.streams.removeListener(listener)


def pytest_itemcollected(item: pytest.Item) -> None:
    # All tests that need Spark go to one worker, which starts it once: the others have the rest to themselves. Only those that
    # kill Spark's processes have a worker of their own (they say so: `xdist_group`), as they wait for JVMs to start for a
    # quarter of what all of Spark's tests take. Marked as each is collected, which is before xdist reads the groups.
    if item.get_closest_marker("spark") and not item.get_closest_marker("xdist_group"):
        item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    crossed: dict[Any, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("crossed"):
            crossed.setdefault((item.path, item.originalname), []).append(item)
    for sets in crossed.values():
        for item, left in zip(sets, left_to_the_soak(each.callspec.params for each in sets), strict=True):
            if left:
                item.add_marker("slow")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.dealing import Dealing

    return Dealing(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_collection_finish() -> None:
    # What is imported and collected by now stays to the end, and is most of what Python's collector would walk each time.
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One local session for the whole suite: starting it costs more than most tests."""
    from plait.spark import session

    folder = tmp_path_factory.mktemp("spark")
    made = session(master="local[2]", partitions=2, **{
        "spark.driver.memory": "1g", "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder),
    })  # fmt: skip
    yield made
    made.stop()
