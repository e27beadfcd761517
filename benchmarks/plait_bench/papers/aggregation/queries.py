"""Table 2: the twelve queries, with their parameters, each run by every design that serves it, to the same bytes."""

from __future__ import annotations

from collections.abc import Sequence

from plait.models.aggregation import windows_per_tuple
from plait.query.identical import difference
from plait_bench import aggregate_queries as paper
from plait_bench.papers.study import Claim, Found, Row, Scale

#: As printed: data, size, advance, and how many windows a tuple is in.
PRINTED = {
    "k": ("EC", 30, 3, 10), "K": ("SC", 30, 3, 10), "w": ("EC", 20, 2, 10), "W": ("EC", 40, 2, 20), "f": ("SC", 20, 2, 10),
    "F": ("SC", 20, 2, 10),
}  # fmt: skip
TUPLES = (3_000, 30_000)  # by size
DATA = {paper.EC: ("EC", "meter"), paper.SC: ("SC", "song")}


def table_2(scale: Scale) -> Found:
    paper.warm()
    rows = []
    for name, query in paper.QUERIES.items():
        data = paper.sources(query.data, 3, scale.pick(*TUPLES), int(2.5 * query.size_s))
        tables = {design: paper.once(query, data, design).table for design in query.designs}
        first = tables[query.designs[0]]
        rows.append({
            "query": name, "data": DATA[query.data][0], "size_s": query.size_s, "advance_s": query.advance_s,
            "key": DATA[query.data][1], "function": query.function.describe(),
            "windows": windows_per_tuple(query.size_s, query.advance_s), "designs": len(tables),
            "differ": sum(difference(first, table) is not None for table in tables.values()), "results": first.num_rows,
            "by": ", ".join(tables),
        })  # fmt: skip
    return shown(rows)


def shown(rows: Sequence[Row]) -> Found:
    """The table of these rows."""
    differ = [row["query"] for row in rows if row["differ"]]
    other = [
        row["query"] for row in rows
        if (row["data"], row["size_s"], row["advance_s"], row["windows"]) != PRINTED[row["query"][0]] or not row["results"]
    ]  # fmt: skip
    claims = [
        Claim("every design gives the same rows in the same order, to the byte", not differ and len(rows) == 12,
              f"{len(rows)} queries, {', '.join(differ) or 'none'} with a difference"),
        Claim("data, windows and advances are the table's", not other, f"other than printed: {', '.join(other) or 'none'}"),
    ]  # fmt: skip
    return Found(
        f"All {len(rows)} queries run on every design that serves them, {sum(row['designs'] for row in rows)} pairs, and "
        f"{len(differ)} of the queries have a row that differs.",
        rows, claims, (),
        "EC and SC are made up with the paper's schemas, 243 meters and 40,000 songs: its data are not public. Keys of SC are by "
        "Zipf's law.",
    )  # fmt: skip
