"""Files are taken however old they are.

Spark's file source passes over a file whose modification time lies further back than `maxFileAge` (seven days) before the newest
one it has taken, and says nothing: what `cp -p`, `rsync -t` or an archive brings in would be missing from the results. A row may
be late; it may not be absent. So plait has Spark take files of any age, whatever the reader was told. The other option that
passes over files, `fileNameOnly`, is refused.

Where it runs: on the driver, before frames are made. Options of a reader can't be changed once it has given a DataFrame,
so the plan is rebuilt with another option in its leaves, by way of the JVM's objects. Where that fails, in another Spark,
and the user has set no `maxFileAge`, the query is refused: rows that are passed over in silence would be worse. Held by
tests/spark/test_sinks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.errors import QueryError

#: A `maxFileAge` that no file exceeds.
ANY_AGE = "36500d"


def any_age(stream: str, data: Any) -> Any:
    """A stream's DataFrames (one, a list or a dict), which then take files of any age. Batches take all files anyway."""
    if isinstance(data, Mapping):
        return {name: any_age(stream, frame) for name, frame in data.items()}
    if isinstance(data, (list, tuple)):
        return [any_age(stream, frame) for frame in data]
    if not getattr(data, "isStreaming", False):
        return data
    from py4j.protocol import Py4JError

    plan = data._jdf.queryExecution().analyzed()
    files = _files(plan)
    for relation in files:
        _check(stream, relation)
    if not files:
        return data
    try:
        return _frame(data, _rebuilt(data.sparkSession, plan))
    except (Py4JError, TypeError, ValueError) as error:  # another Spark, with other insides
        if all(_option(relation, "maxFileAge") is not None for relation in files):
            return data
        raise QueryError(
            f"Stream {stream!r}: this Spark does not let plait set maxFileAge ({type(error).__name__})",
            why="without it files older than seven days are passed over, and their rows are missing",
            do=f"Set it yourself: spark.readStream.option('maxFileAge', '{ANY_AGE}')",
        ) from error


def _files(plan: Any) -> list[Any]:
    """The relations of a plan that Spark's file source reads."""
    leaves = plan.collectLeaves()
    found = [leaves.apply(n) for n in range(leaves.size())]
    return [leaf for leaf in found if _reads_files(leaf)]


def _reads_files(leaf: Any) -> bool:
    """Whether a leaf is a stream of files: Parquet, CSV, JSON, text."""
    name = str(leaf.getClass().getSimpleName())
    return name == "StreamingRelation" and str(leaf.sourceName()).startswith("FileSource[")


def _check(stream: str, relation: Any) -> None:
    """Refuse an option that has Spark take files of one name for one file."""
    if str(_option(relation, "fileNameOnly")).lower() == "true":
        raise QueryError(
            f"Stream {stream!r}: its reader has fileNameOnly=true",
            why="of two files of one name in two folders Spark would take the first, and say nothing",
            do="Leave that option out",
        )


def _option(relation: Any, name: str) -> str | None:
    """An option of a reader, by name in any letters; None if it is not set."""
    return next((value for key, value in _options(relation.dataSource()).items() if key.lower() == name.lower()), None)


def _options(source: Any) -> dict[str, str]:
    options = source.options().toSeq()
    pairs = (options.apply(n) for n in range(options.size()))
    return {str(pair._1()): str(pair._2()) for pair in pairs}


def _rebuilt(spark: Any, plan: Any) -> Any:
    """A plan whose file sources have the option. What stands above them stays, with its columns."""
    if _reads_files(plan):
        source, options = plan.dataSource(), plan.dataSource().options()
        for key in _options(source):
            if key.lower() == "maxfileage":
                options = options.removed(key)
        return _with(plan, "dataSource", _with(source, "options", options.updated("maxFileAge", ANY_AGE)))
    children = plan.children()
    if children.size() == 0:
        return plan
    new = [_rebuilt(spark, children.apply(n)) for n in range(children.size())]
    return plan.withNewChildren(spark._jvm.PythonUtils.toSeq(new))


def _with(record: Any, name: str, value: Any) -> Any:
    """A copy of a case class with one field changed."""
    places = range(record.productArity())
    names = [str(record.productElementName(n)) for n in places]
    fields = [record.productElement(n) for n in places]
    fields[names.index(name)] = value
    return record.copy(*fields)


def _frame(like: Any, plan: Any) -> Any:
    """A DataFrame of a plan, in the session of another."""
    spark = like.sparkSession
    made = spark._jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, plan)
    return type(like)(made, spark)
