"""Whether a query may go on from what another start of it has left: the same one may, another may not.

A query is known by its fingerprint. Users' functions are part of it, with all that they reach (`function_text`, `pin`); those
of `plait.operator` stand beside it, since they may be mended. A query that differs in functions alone goes on only with the
user's word, `on_spark(..., functions="changed")`: what came before was computed by the old ones, what comes next by the new.
So does one that depends on something of which nobody can tell whether it is the same.
"""

from __future__ import annotations

from typing import Any

from plait.errors import RunError

_WORD = "on_spark(..., functions='changed')"


def check_card(card: dict[str, Any], own: dict[str, Any], checkpoint: str, *, changed: bool) -> None:
    """Refuse a checkpoint's card that another query has written. Cards of earlier versions lack `shape` and `functions`."""
    same = card["fingerprint"] == own["fingerprint"]
    functions = card.get("functions", own["functions"]) == own["functions"]
    if not same and not _only_functions(card, own, changed=changed):
        differs = next((k for k in ("query", "layout", "partitions") if card[k] != own[k]), "its condition or columns")
        raise RunError(
            f"The checkpoint {checkpoint!r} was written by another query: it differs in {differs}",
            why=f"it has {card.get(differs, card['fingerprint'])!r} and this one {own.get(differs, own['fingerprint'])!r}",
            do="Use another checkpoint folder, or the query it was started with",
        )
    if changed:
        return
    if not same or not functions:
        raise other_functions(f"The checkpoint {checkpoint!r}")
    if own["loose"]:
        raise RunError(
            f"Nobody can tell whether the functions of this query are those that the checkpoint {checkpoint!r} was written with",
            why=f"they depend on {'; on '.join(own['loose'])}",
            do=f"Have them depend on values alone, or say that it is all right with {_WORD}",
        )


def _only_functions(card: dict[str, Any], own: dict[str, Any], *, changed: bool) -> bool:
    if "shape" in card:
        return bool(card["shape"] == own["shape"])
    return changed and all(card[k] == own[k] for k in ("query", "layout", "partitions"))


def check_state(fingerprint: tuple[str, str, str], own: tuple[str, str, str], *, changed: bool) -> None:
    """The same of a cell's state: fingerprint, shape and functions, of which states of earlier versions have the first."""
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
    return RunError(
        f"{what} was written with other functions than this query has: their code, or a value that they take from outside",
        why="results so far were computed by those, and the next ones would be by these",
        do=f"Use another checkpoint folder or the functions it was started with; to go on with these, say {_WORD}",
    )
