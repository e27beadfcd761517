"""Aggregate functions: which function of plait's a call in SQL is.

Only calls that mean the same are in the table. Where SQL leaves open which row is meant (`first`, `max_by` of equals), plait has
an answer, by total order. A function that leaves out NULL in SQL and keeps it in plait has a condition that leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from sqlglot import exp

from plait.query import functions, statistics
from plait.query.functions import Function
from plait.query.select import expressions
from plait.query.select.source import Source

#: Functions of one argument, by sqlglot's class.
_ONE: Final[dict[type[exp.Expr], Callable[..., Function]]] = {
    exp.Sum: functions.sum, exp.Avg: functions.mean, exp.Min: functions.min, exp.Max: functions.max,
    exp.Stddev: statistics.std, exp.StddevSamp: statistics.std, exp.Variance: functions.var,
    exp.Median: statistics.median, exp.Mode: statistics.mode,
    exp.First: functions.first, exp.FirstValue: functions.first, exp.Last: functions.last, exp.LastValue: functions.last,
    exp.ArrayAgg: functions.collect,
}  # fmt: skip
#: Functions of two arguments.
_TWO: Final[dict[type[exp.Expr], Callable[..., Function]]] = {
    exp.CovarSamp: statistics.covar, exp.Corr: statistics.corr, exp.ArgMin: statistics.arg_min, exp.ArgMax: statistics.arg_max,
}  # fmt: skip
#: Spark's names that sqlglot has no class for.
_NAMED: Final = {"mean": functions.mean, "std": statistics.std}
#: What to write instead of a function that has no exact or no single answer.
_INSTEAD: Final[dict[type[exp.Expr], str]] = {
    exp.AnyValue: "Write first(x), which is the first one in event time",
    exp.ApproxDistinct: "Write count(DISTINCT x), which is exact",
    exp.ApproxQuantile: "Write percentile(x, 0.9), which is exact",
    exp.ArrayUniqueAgg: "Write collect_list(x), in event time, or count(DISTINCT x)",
    exp.VariancePop: "Write var_samp(x), the variance of a sample",
    exp.StddevPop: "Write stddev_samp(x), the deviation of a sample",
    exp.CovarPop: "Write covar_samp(x, y), the covariance of a sample",
}
#: Arguments that say nothing more than the function's name does.
_SILENT: Final = ("this", "expression", "big_int", "nulls_excluded", "quantile")


def is_call(node: exp.Expr) -> bool:
    """Whether a node computes over the rows of a window."""
    named = isinstance(node, exp.Anonymous) and node.name.lower() in _NAMED
    return named or expressions.is_aggregate(node)


class Calls:
    """Makes functions of calls.

    Args:
        source: The text.
        words: An expression's own words over the input's rows.
    """

    def __init__(self, source: Source, words: Callable[[exp.Expr], exp.Expr]) -> None:
        self.source, self.words = source, words

    def function(self, call: exp.Expr) -> Function:
        """The function that a call is; refused by name where there is none."""
        node, seen = call, []
        if isinstance(node, exp.Filter):
            expressions.check(self.source, node.expression.this, clause="FILTER")
            seen.append(node.expression.this)
            node = node.this
        skips = isinstance(node, (exp.IgnoreNulls, exp.ArrayAgg))
        if isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)):
            node = node.this
        for inner in node.args.values():
            for each in inner if isinstance(inner, list) else [inner]:
                if isinstance(each, exp.Expr) and not isinstance(node, exp.WithinGroup):
                    expressions.check(self.source, each, clause="an aggregate function")
        if skips:
            seen.append(_present(node.this))
        build = self._made(call, node, seen)
        with self.source.at(call):
            return build()

    def _made(self, call: exp.Expr, node: exp.Expr, seen: list[exp.Expr]) -> Callable[[], Function]:
        """How the function is built; what it is given has been read by then."""
        kind = type(node)
        if kind in (exp.Count, exp.CountIf, exp.Quantile, *_ONE, *_TWO) and None in (
            node.this,
            kind not in _TWO or node.expression,
        ):
            raise self.source.refuse(call, "an argument is missing", do="Write what the function is given")
        if isinstance(node, exp.Count):
            return self._count(call, node, seen)
        if isinstance(node, exp.CountIf):
            return partial(functions.count_where, self._all([node.this, *seen]) or "true")
        if isinstance(node, exp.WithinGroup):
            return self._within(call, node, seen)
        where = self._all(seen)
        named = _NAMED.get(node.name.lower()) if isinstance(node, exp.Anonymous) else None
        if named is not None and len(node.expressions) == 1:
            return partial(named, self._argument(node.expressions[0]), where=where)
        odd = [name for name, value in node.args.items() if value and name not in _SILENT]
        if not odd and kind in _ONE and not isinstance(node.this, exp.Distinct):
            return partial(_ONE[kind], self._argument(node.this), where=where)
        if not odd and kind in _TWO:
            return partial(_TWO[kind], self._argument(node.this), self._argument(node.expression), where=where)
        if odd == ["count"] and kind is exp.ArgMax:
            return self._top(node, where)
        if not odd and kind is exp.Quantile:
            return self._quantile(node.this, node.args["quantile"], interpolate=True, seen=seen)
        raise self._refused(call, node)

    def _top(self, node: exp.Expr, where: str | None) -> Callable[[], Function]:
        """`max_by(x, y, k)`, as Snowflake has it: a list of the k values whose y is greatest."""
        count = node.args["count"]
        if not isinstance(count, exp.Literal) or not count.name.isdigit():
            raise self.source.refuse(count, "max_by's number is a constant", do="Write a whole number from 1 on")
        given = self._argument(node.this), int(count.name), self._argument(node.expression)
        return partial(statistics.top, *given, where=where)

    def _count(self, call: exp.Expr, node: exp.Count, seen: list[exp.Expr]) -> Callable[[], Function]:
        """`count(*)` counts rows, `count(x, y)` those in which neither is NULL, `count(DISTINCT x)` different values."""
        given = [node.this, *node.expressions]
        if isinstance(node.this, exp.Distinct):
            if len(node.this.expressions) != 1:
                raise self.source.refuse(call, "count(DISTINCT ...) of several columns", do="Count one column")
            return partial(functions.distinct, self._argument(node.this.expressions[0]), where=self._all(seen))
        seen = seen + [_present(each) for each in given if not isinstance(each, (exp.Star, exp.Literal))]
        return partial(functions.count, where=self._all(seen))

    def _within(self, call: exp.Expr, node: exp.WithinGroup, seen: list[exp.Expr]) -> Callable[[], Function]:
        """`percentile_cont(q) WITHIN GROUP (ORDER BY x)`, and `percentile_disc`."""
        inner, order = node.this, node.expression
        kinds = {exp.PercentileCont: True, exp.PercentileDisc: False}
        ordered = order.expressions if isinstance(order, exp.Order) else []
        if type(inner) not in kinds or len(ordered) != 1 or ordered[0].args.get("desc"):
            raise self._refused(call, inner)
        return self._quantile(ordered[0].this, inner.this, interpolate=kinds[type(inner)], seen=seen)

    def _quantile(
        self, value: exp.Expr, part: exp.Expr, *, interpolate: bool, seen: list[exp.Expr]
    ) -> Callable[[], Function]:
        if not isinstance(part, exp.Literal) or part.is_string:
            raise self.source.refuse(
                part, "a percentile's part is a constant", do="Write a number from 0 to 1, such as 0.9"
            )
        given = self._argument(value)
        return partial(statistics.quantile, given, float(part.name), interpolate=interpolate, where=self._all(seen))

    def _argument(self, node: exp.Expr) -> str:
        """What a function is given: a column's name, or the text of an expression."""
        made = self.words(node)
        return made.name if isinstance(made, exp.Column) else made.sql("spark", comments=False)

    def _all(self, parts: list[exp.Expr]) -> str | None:
        return expressions.conjunction([self.words(part) for part in parts])

    def _refused(self, call: exp.Expr, node: exp.Expr) -> Exception:
        name = node.name if isinstance(node, exp.Anonymous) else node.sql_name() if isinstance(node, exp.Func) else "it"
        distinct = isinstance(node.this, exp.Distinct)
        return self.source.refuse(
            call,
            f"{name.lower()}{'(DISTINCT ...)' if distinct else ''} is no aggregate function that plait has",
            why="there are count, count_if, sum, avg, min, max, stddev, variance, covar_samp, corr, median, percentile, "
            "percentile_cont, percentile_disc, mode, min_by, max_by, first, last, collect_list and count(DISTINCT x)",
            do=_INSTEAD.get(type(node), "Use one of these, or plait.custom in Python"),
        )


def _present(node: exp.Expr) -> exp.Expr:
    """Where an expression is not NULL."""
    return exp.Not(this=exp.Is(this=node.copy(), expression=exp.Null()))
