"""One SQL text: its tree, and where in the text each part of it stands.

sqlglot parses, in Spark's dialect. Two words are read otherwise than sqlglot does for Spark: `window(` begins a call, as it does
in Spark, and `MATCH_CONDITION` belongs to ASOF JOIN. Every refusal is made here, so that each tells line, column and the words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from plait.errors import PlaitError, QueryError
from plait.query.base import Query
from plait.query.bind import bind
from plait.query.condition.expression import check_text, too_deep
from plait.query.condition.sql_functions import DIALECT

#: How much of a line is shown on either side of the words in question.
_AROUND: Final = 30

#: Levels of a statement, at most; an expression in it has fewer (`condition.expression`).
_DEEPEST: Final = 400

Span = tuple[int, int]


class _Parser(SparkParser):
    """Spark's, with the word that Snowflake has for as-of joins."""

    TABLE_ALIAS_TOKENS = SparkParser.TABLE_ALIAS_TOKENS - {TokenType.MATCH_CONDITION}


def _is_deep(trees: list[Any]) -> bool:
    """Whether a parsed text is nested deeper than who translates it can go down: a subquery in FROM is four levels."""
    level = 0
    while trees and level <= _DEEPEST:
        trees, level = [inner for each in trees for inner in each.iter_expressions()], level + 1
    return bool(trees)


class Source:
    """A text that was parsed. `tree` is its one statement.

    Args:
        text: One SELECT.
        schemas: The columns of streams, as far as they are known.

    Raises:
        QueryError: The text is no SQL, or is more than one statement.
    """

    def __init__(self, text: str, schemas: Mapping[str, pa.Schema]) -> None:
        check_text(text, "The SQL text")
        self.text, self.schemas = text, schemas
        dialect = Dialect.get_or_raise(DIALECT)
        try:
            self.tokens: list[Token] = dialect.tokenize(text)
            for token, after in zip(self.tokens, self.tokens[1:], strict=False):
                if token.token_type is TokenType.WINDOW and after.token_type is TokenType.L_PAREN:
                    token.token_type = TokenType.VAR
                elif token.text.upper() == "MATCH_CONDITION" and after.token_type is TokenType.L_PAREN:
                    token.token_type = TokenType.MATCH_CONDITION
            found: list[Any] | None = [
                tree for tree in _Parser(dialect=dialect).parse(self.tokens, text) if tree is not None
            ]
        except sqlglot.errors.SqlglotError as error:
            raise self._no_sql(error) from error
        except RecursionError:
            found = None
        if found is None or _is_deep(found):
            raise too_deep("The SQL text")
        if len(found) != 1:
            raise QueryError(
                f"The SQL text holds {len(found)} statements",
                why="a query is one SELECT",
                do="Write one SELECT, with what it reads in WITH name AS (SELECT ...)",
            )
        self.tree: exp.Expr = found[0]

    def _no_sql(self, error: Exception) -> QueryError:
        """What sqlglot could not read, and where."""
        details: list[dict[str, Any]] = getattr(error, "errors", None) or [{}]
        first = details[0]
        reason = (first.get("description") or str(error).split("\n")[0]).split(" but got <Token")[0]
        reason = "an operand is missing" if "Required keyword" in reason else reason
        words, before = first.get("highlight") or "", first.get("start_context") or ""
        at = self.text.find(before + words) + len(before) if words else -1
        where = f" at {self.place((at, at + len(words)))}" if at >= 0 else ""
        return QueryError(f"The text is not SQL{where}: {reason}", do="Write one SELECT in Spark's dialect")

    # --- places ---

    def span(self, node: exp.Expr) -> Span | None:
        """From the first to past the last word of a node that sqlglot knows the place of; None if it knows none."""
        marks = [each.meta for each in node.walk() if "start" in each.meta]
        if not marks:
            return None
        start, end = min(mark["start"] for mark in marks), max(mark["end"] for mark in marks) + 1
        if isinstance(node, exp.Func) and "start" not in node.meta:  # sqlglot has lost the name of some functions
            start = self._called(start)
        for token in self.tokens:  # a call's last parenthesis is no word of its own
            words = self.text[start:end]
            if token.start >= end and words.count("(") > words.count(")"):
                end = token.end + 1
        return start, end

    def _called(self, start: int) -> int:
        """Where the name of a function begins whose first argument begins at `start`."""
        before = [token for token in self.tokens if token.start < start][-2:]
        return before[0].start if len(before) == 2 and before[1].token_type is TokenType.L_PAREN else start

    def word(self, words: tuple[str, ...], near: exp.Expr | None = None) -> Span:
        """The place of a keyword: the last one before a node, or the first one of the text."""
        found = [
            token for token in self.tokens if " ".join(self.text[token.start : token.end + 1].upper().split()) in words
        ]
        limit = None if near is None else self.span(near)
        before = [token for token in found if limit is not None and token.start < limit[0]]
        token = before[-1] if before else found[0] if found else None
        if token is None:  # a hint is no word of its own
            at = max(self.text.find(words[0]), 0)
            return at, at + len(words[0])
        return token.start, token.end + 1

    def place(self, span: Span) -> str:
        """A place for a message: line, column, and the words between « and »."""
        start, end = span
        before, words, after = self.text[:start], self.text[start:end], self.text[end:]
        line, column = before.count("\n") + 1, start - (before.rfind("\n") + 1) + 1
        left, right = before.rpartition("\n")[2][-_AROUND:], after.partition("\n")[0][:_AROUND]
        return f"line {line}, column {column}, `{left.lstrip()}«{' '.join(words.split())}»{right.rstrip()}`"

    def refuse(self, at: exp.Expr | Span, fact: str, *, why: str = "", do: str = "") -> QueryError:
        """The error for something that can't be translated: where it stands, what it is, why not, and what to write instead."""
        node = at if isinstance(at, exp.Expr) else None
        span = at if isinstance(at, tuple) else self.span(at)
        while span is None and node is not None:  # a number of an INTERVAL has no place of its own
            node = node.parent
            span = None if node is None else self.span(node)
        where = self.place(span or (0, 0))
        return QueryError(f"SQL, {where}: {fact}", why=why, do=do)

    @contextmanager
    def at(self, place: exp.Expr | Span) -> Iterator[None]:
        """What is refused in here by parts of plait that know nothing of the text is told with its place."""
        try:
            yield
        except PlaitError as error:
            raise self.refuse(place, error.fact, why=error.why, do=error.do) from error

    def bind(self, node: Query) -> Query:
        """The query; refused now, and not when it is run, if its columns are known and don't go together."""
        if all(name in self.schemas for name in node.streams()):
            bind(node, self.schemas)
        return node


def identifier(name: str) -> exp.Identifier:
    """A name as it is written in SQL: in backticks only where it has to be."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z_0-9]*", name) is not None
    tokens = Dialect.get_or_raise(DIALECT).tokenize(name) if plain else []
    return exp.to_identifier(name, quoted=[token.token_type for token in tokens] != [TokenType.VAR])
