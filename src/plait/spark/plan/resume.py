"""Whether a query may go on from what another start of it has left: the same one may, another may not.

A query is known by its fingerprint. Users' functions are part of it, with all that they reach (`function_text`, `pin`); those
of `plait.operator` stand beside it, since they may be mended. A query that differs in functions alone goes on only with the
user's word, `on_spark(..., functions="changed")`: what came before was computed by the old ones, what comes next by the new.
So does one that depends on something of which nobody can tell whether it is the same.

Where it runs: `check_pins` on the driver, before a start touches anything; `check_state` in each cell and batch, because
who publishes with a sink of their own, and not with `write_ordered`, has no card. Held by tests/spark/test_pinning.py.
"""

from __future__ import annotations

from plait.errors import RunError
from plait.spark.formats import Pins

_WORD = "on_spark(..., functions='changed')"


def check_pins(pins: Pins, own: Pins, checkpoint: str, *, changed: bool) -> None:
    """Refuse a checkpoint that another query has written.

    Layout and partitions are part of what is compared: they decide where state lies. The words name the first thing that
    differs.
    """
    same = pins.fingerprint == own.fingerprint
    if not same and pins.shape != own.shape:
        differs, written, asked = _difference(pins, own)
        raise RunError(
            f"The checkpoint {checkpoint!r} was written by another query: it differs in {differs}",
            why=f"it has {written!r} and this one {asked!r}",
            do="Use another checkpoint folder, or the query it was started with",
        )
    if changed:
        return
    if not same or pins.functions != own.functions:
        raise other_functions(f"The checkpoint {checkpoint!r}")
    if own.loose:
        raise RunError(
            f"Nobody can tell whether the functions of this query are those that the checkpoint {checkpoint!r} was written with",
            why=f"they depend on {'; on '.join(own.loose)}",
            do=f"Have them depend on values alone, or say that it is all right with {_WORD}",
        )


def _difference(pins: Pins, own: Pins) -> tuple[str, object, object]:
    """In what two queries differ, and what each of them has."""
    if pins.query != own.query:
        return "query", pins.query, own.query
    if (pins.rows, pins.columns) != (own.rows, own.columns):
        return "layout", [pins.rows, pins.columns], [own.rows, own.columns]
    if pins.layout != own.layout:
        return "layout", *((each.layout or {}).get("kind", "one by rows and columns") for each in (pins, own))
    if pins.partitions != own.partitions:
        return "partitions", pins.partitions, own.partitions
    return "its condition or columns", pins.fingerprint, own.fingerprint


def check_state(fingerprint: tuple[str, str, str], own: tuple[str, str, str], *, changed: bool) -> None:
    """The same of a cell's state: fingerprint, shape and functions. `relayout` writes the first alone: it knows no functions.

    After `changed` was said once, the cell's state has the new fingerprint, and the next start needs no word for it.
    """
    (written, shape, functions), (mark, own_shape, own_functions) = fingerprint, own
    if written == mark and (not functions or functions == own_functions or changed):
        return
    if written == mark or (shape and shape == own_shape):
        if changed:
            return
        raise other_functions("The checkpoint")
    if not (changed and not shape):
        raise RunError(
            "The checkpoint was written by another query",
            why=f"its fingerprint is {written}, this query's is {mark}",
            do="Use another checkpoint folder",
        )


def other_functions(what: str) -> RunError:
    """The refusal of a query that differs in its functions alone."""
    return RunError(
        f"{what} was written with other functions than this query has: their code, or a value that they take from outside",
        why="results so far were computed by those, and the next ones would be by these",
        do=f"Use another checkpoint folder or the functions it was started with; to go on with these, say {_WORD}",
    )
