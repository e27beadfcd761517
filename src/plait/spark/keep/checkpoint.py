"""A checkpoint's card, `plait.json`: what it pins, who it is, and where its results go.

fingerprint, query, layout, partitions, and of users' functions what `resume` compares   what it was started with
first    the batches that earlier checkpoints of the query had; left: where its state went (both: `relayout`)
id       its identity, made with it; runs: tokens of its last starts; target: its folder of results (all: `target`)
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plait import paths
from plait.errors import RunError
from plait.spark.publish.target import Owner, Target, locked, put

CARD = "plait.json"
_WHAT = "The checkpoint"


def tie(plan: Any, checkpoint: Path, targets: Sequence[Target]) -> tuple[Any, Owner, int]:
    """Pin a plan to its checkpoint, and the checkpoint to its folders. All are checked before any of them is touched.

    Gives the plan as pinned, the checkpoint as the folders' owner, and the number of its first part.
    """
    with _made(checkpoint), locked(checkpoint):
        card = read_card(checkpoint)
        first = (card or {}).get("first", 0)
        owner = _owner(plan, checkpoint, card, first)
        if card is None:
            _check(targets, owner)
        plan = plan.pinned(checkpoint, card)
        if card is not None:
            _check(targets, owner)
        plan.announce()
        runs = [*targets[0].last_run(owner), owner.run]
        write_card(
            checkpoint, (card or {}) | plan.card() | {"id": owner.id, "runs": runs, "target": str(targets[0].folder)}
        )
        for target in targets:
            target.claim(owner)
    return plan, owner, first


@contextmanager
def publishing(owner: Owner, target: Target) -> Iterator[None]:
    """Publish inside of this: the folder is still the checkpoint's, and the checkpoint this start's."""
    with target.held(owner):
        card = read_card(owner.checkpoint)
        if card is None or card["runs"][-1] != owner.run:
            raise RunError(
                f"The checkpoint {str(owner.checkpoint)!r} is no longer this query's",
                why="it was removed" if card is None else "it has been started again since, elsewhere",
                do="Let one query run on it; nothing of this batch was published",
            )
        yield


def _check(targets: Sequence[Target], owner: Owner) -> None:
    for target in targets:
        target.check(owner)


def _owner(plan: Any, checkpoint: Path, card: dict[str, Any] | None, first: int) -> Owner:
    known = card or {}
    return Owner(
        checkpoint,
        known.get("id") or secrets.token_hex(16),
        plan.cell.query,
        first + last_number(checkpoint, "offsets") if card is not None else -1,
        tuple(known.get("runs", ())),
        secrets.token_hex(8),
        known.get("target", ""),
        adopts=card is not None and "id" not in card,
    )


@contextmanager
def _made(checkpoint: Path) -> Iterator[None]:
    """A folder to lock. One that was made for that goes again if the start is refused."""
    new = not checkpoint.exists()
    paths.folder(checkpoint, _WHAT)
    try:
        yield
    except BaseException:
        if new:
            with contextlib.suppress(OSError):
                checkpoint.rmdir()
        raise


def last_number(checkpoint: Path, kind: str) -> int:
    """The last batch that is planned ("offsets") or done ("commits"); -1 for none."""
    return max((int(file.name) for file in (checkpoint / kind).glob("*") if file.name.isdigit()), default=-1)


def read_card(checkpoint: Path) -> dict[str, Any] | None:
    """What a checkpoint was started with; an error if something else than plait's started it."""
    card = checkpoint / CARD
    if card.exists():
        try:
            parsed: dict[str, Any] = json.loads(card.read_text())
        except (ValueError, OSError) as error:
            raise RunError(
                f"{str(card)!r} can't be read",
                why=str(error),
                do="Bring it back, or begin anew with another checkpoint",
            ) from None
        return parsed
    if (checkpoint / "offsets").exists():
        raise RunError(
            f"The checkpoint {str(checkpoint)!r} was not written by write_ordered",
            why=f"it has offsets and no {CARD}",
            do="Use another checkpoint folder",
        )
    return None


def check_not_left(checkpoint: Path, card: dict[str, Any]) -> None:
    if "left" in card:
        raise RunError(
            f"The checkpoint {str(checkpoint)!r} has been left for {card['left']!r}",
            why="relayout has moved its state there, and two queries would both publish what comes next",
            do="Use that one",
        )


def write_card(checkpoint: Path, card: dict[str, Any]) -> None:
    paths.folder(checkpoint, _WHAT)
    try:
        put(checkpoint / CARD, json.dumps(card, indent=1) + "\n")
    except OSError as error:
        raise RunError(f"The checkpoint {str(checkpoint)!r} can't be written", why=str(error)) from None
