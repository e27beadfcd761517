"""SQL files: one SELECT, as `plait.sql` takes it. What it reads, and where results go, is told in TOML.

The TOML has all that a TOML file of a query has but `[query]` itself: see `toml_file`. It stands in the file of the same name
beside the SQL (`best.toml` for `best.sql`), or in the first lines of the SQL, each of which begins with `--!`:

    --! [streams.bids]
    --! path = "bids/"
    SELECT ... FROM bids ...

Columns that a stream does not declare are those of its rows. Held by tests/cli/test_sql_files.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from plait.cli import toml_file
from plait.cli.job import Job
from plait.connectors import folder
from plait.connectors.contract import Feed
from plait.errors import DataError, QueryError
from plait.query.base import Node, Query
from plait.query.select import named_in, sql
from plait.query.stream import Stream

MARK = "--!"


def load(file: Path, inputs: Mapping[str, str]) -> Job:
    """Read an SQL file and the TOML that belongs to it.

    Args:
        file: The SQL.
        inputs: Files or folders by stream name, which tell columns where the TOML has no path.

    Raises:
        DataError: There is no TOML, or it stands in both places.
        QueryError: The SQL can't be translated; the message has the place.
    """
    text = toml_file.content(file)
    head = _head(text)
    beside = file.with_suffix(".toml")
    if head and beside.is_file():
        raise DataError(
            f"{file} tells of its streams in its first lines, and so does {beside.name}",
            why="one of them would be passed over",
            do=f"Keep one: the lines with {MARK}, or the file",
        )
    if not head and not beside.is_file():
        raise DataError(
            f"{file} does not tell what its streams are",
            do=f"Write [streams.NAME] into {beside.name} beside it, or into its first lines, each behind {MARK}",
        )

    def build(nodes: Mapping[str, Node], rows: Callable[[str], Feed | None]) -> Query:
        return _query(file, text, nodes, inputs, rows)

    place, told = (file, head) if head else (beside, toml_file.content(beside))
    return replace(toml_file.described(place, told, build), title=file.name)


def _head(text: str) -> str:
    """The TOML in the first lines of an SQL text, each on its own line still."""
    lines = []
    for line in text.splitlines():
        if not line.startswith(MARK):
            break
        lines.append(line.removeprefix(MARK))
    return "\n".join(lines)


def _query(
    file: Path, text: str, nodes: Mapping[str, Node], inputs: Mapping[str, str], rows: Callable[[str], Feed | None]
) -> Query:
    """The query of the text. Only streams that it names are looked for: another one may have a path that is not there."""
    try:
        wanted = [node for name, node in nodes.items() if name.lower() in named_in(text)]
        streams = {each.name: each for node in wanted for each in _streams(node)}
        schemas = {}
        for name, stream in streams.items():
            feed = folder.feed(stream, inputs[name]) if name in inputs else rows(name)
            if stream.schema is None and feed is not None:
                schemas[name] = feed.schema
        return sql(text, streams=nodes, schemas=schemas)
    except QueryError as error:
        raise QueryError(f"{file}: {error.fact}", why=error.why, do=error.do) from error


def _streams(node: Node) -> list[Stream]:
    return [node] if isinstance(node, Stream) else list(node.streams().values())
