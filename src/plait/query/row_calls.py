"""What streams and queries have in common: calls that change rows one by one.

They are here, below both, since a stream can't know of queries. What they make is `plait.query.row_by_row`'s to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait.query.arguments import RowFunction

if TYPE_CHECKING:
    from plait.query.row_by_row import RowByRow

#: A column's expression: SQL text, a function of one row, or a function with the type of what it returns.
Value = RowFunction | tuple[Callable[[Any], object], str | pa.DataType]


class RowCalls:
    """Calls of streams and queries that give the same rows, in the same order, with other columns, or only some of them.

    The examples of its methods go on from this one.

    Example:
        >>> import plait
        >>> quotes = plait.stream("quotes", unit="s")
        >>> rows = {"quotes": {"ts": [1, 2, 3], "bid": [10, None, 30], "ask": [11, 21, 33]}}
        >>> quotes.where("bid > 5").run(rows).num_rows
        2
    """

    def where(self, condition: RowFunction) -> RowByRow:
        """Only the rows for which a condition is true.

        What is late, behind or holds the frontier is judged before, on all rows. Windows that count see only what has passed.

        Args:
            condition: SQL text, or a function of one row. Unknown (a comparison with NULL or NaN) is not true.

        Returns:
            A query. Its rows have the ts and the order that they had.

        Raises:
            QueryError: It is no condition.

        Example:
            >>> quotes.where(lambda row: row.ask - row.bid > 1).run(rows)["ask"].to_pylist()
            [33]
        """
        from plait.query.row_by_row import where

        return where(self, condition)

    def select(self, /, *names: str, **columns: Value) -> RowByRow:
        """Rows with these columns and no others.

        A query's rows keep `ts` in front, which is their time.

        Args:
            *names: Columns that stay as they are.
            **columns: New columns by name: SQL text, a function of one row, or a pair of a function and the type of its results
                where plait can't tell it (a function with `if`). NULL where the value is unknown.

        Returns:
            A query. Its rows have the ts and the order that they had.

        Raises:
            QueryError: No column is named, one is named twice, or an expression can't be read.

        Example:
            >>> quotes.select("bid", mid="(bid + ask) / 2").run(rows).to_pylist()[0]
            {'ts': 1000000, 'bid': 10, 'mid': 10.5}
        """
        from plait.query.row_by_row import select

        return select(self, names, columns)

    def keep(self, *names: str) -> RowByRow:
        """Rows with these columns, as they are, and no others: `select` without expressions.

        Args:
            *names: The columns, in the order that they shall have.

        Returns:
            A query. Its rows have the ts and the order that they had.

        Raises:
            QueryError: No column is named, or one is named twice.

        Example:
            >>> quotes.keep("ask").run(rows).column_names
            ['ts', 'ask']
        """
        return self.select(*names)

    def drop(self, *names: str) -> RowByRow:
        """Rows without these columns.

        Args:
            *names: The columns to leave out.

        Returns:
            A query. Its rows have the ts and the order that they had.

        Raises:
            QueryError: No column is named.

        Example:
            >>> quotes.drop("ask").run(rows).column_names
            ['ts', 'bid']
        """
        from plait.query.row_by_row import drop

        return drop(self, names)

    def rename(self, /, **columns: str) -> RowByRow:
        """Rows with columns under other names, in the same places.

        Args:
            **columns: The old name for each new one.

        Returns:
            A query. Its rows have the ts and the order that they had.

        Raises:
            QueryError: No column is named.

        Example:
            >>> quotes.rename(price="bid").run(rows).column_names
            ['ts', 'price', 'ask']
        """
        from plait.query.row_by_row import rename

        return rename(self, columns)
