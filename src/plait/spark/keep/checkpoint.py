"""A checkpoint's card, `plait.json` (`formats.Card`): read before anything else, written when a start is allowed.

Where it runs: on the driver, in `write_ordered` and `relayout`, and before each part is published. A checkpoint is a
folder in which Spark has its offsets, commits and state; the card stands beside them and Spark does not know of it. It is
read before Spark is asked to start anything, so a checkpoint of another query, another plait or another owner is refused
with nothing touched. Held by tests/spark/test_checkpoints.py and tests/spark/test_targets.py.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plait import paths, trust
from plait.errors import RunError
from plait.spark.formats import Card
from plait.spark.plan.local import is_local
from plait.spark.publish.target import Owner, Target, locked, put

_WHAT = "The checkpoint"


def tie(plan: Any, checkpoint: Path, targets: Sequence[Target]) -> tuple[Any, Owner, int]:
    """Pin a plan to its checkpoint, and the checkpoint to its folders. All are checked before any of them is touched.

    Gives the plan as pinned, the checkpoint as the folders' owner, and the number of its first part.

    The order: a lock on the checkpoint; its card is read, which refuses another version; folders and plan are checked;
    only then are files written: the control folder's card, the checkpoint's card, the folders' notes. A process that dies
    between two of these leaves a state that the next start takes up.

    For a fresh checkpoint folders are checked before the plan is pinned, because that makes the folder of control events
    inside of it. The token of this start goes into the card together with the one that the folder of results has, see
    `Owner.runs`.
    """
    with _made(checkpoint), locked(checkpoint):
        check_owned(plan, checkpoint)
        card = read_card(checkpoint)
        if card is not None:
            check_logs(checkpoint)
        first = 0 if card is None else card.first
        owner = _owner(plan, checkpoint, card, first)
        if card is None:
            _check(targets, owner)
        plan = plan.pinned(checkpoint, card)
        if card is not None:
            _check(targets, owner)
        plan.announce()
        runs = (*targets[0].last_run(owner), owner.run)
        write_card(checkpoint, Card(plan.pins(), owner.id, runs, str(targets[0].folder), first))
        for target in targets:
            target.claim(owner)
    return plan, owner, first


def check_owned(plan: Any, checkpoint: Path) -> None:
    """Refuse a checkpoint that others may have written, where it holds states of users' functions: these are pickles, which run.

    Before anything in it is read. On a cluster files of executors may belong to another user of Spark's, so there owners are not
    asked about, only who may write.
    """
    if not plan.pickles:
        return
    found = trust.doubt_below(checkpoint, owner=is_local(plan.spark.sparkContext.master))
    if found is not None:
        raise RunError(
            f"The checkpoint {str(checkpoint)!r} may have been written by others: {found}",
            why="the states of an operator's functions in it are pickles, and would run whatever is in them",
            do="Take the right to write from others (chmod -R go-w), or, if all who have it are trusted, name the folder in "
            f"{trust.VARIABLE}",
        )


@contextmanager
def publishing(owner: Owner, target: Target) -> Iterator[None]:
    """Publish inside of this: the folder is still the checkpoint's, and the checkpoint this start's. A batch run has none."""
    with target.held(owner):
        if owner.checkpoint is None:
            yield
            return
        card = read_card(owner.checkpoint)
        if card is None or card.runs[-1] != owner.run:
            raise RunError(
                f"The checkpoint {str(owner.checkpoint)!r} is no longer this query's",
                why="it was removed" if card is None else "it has been started again since, elsewhere",
                do="Let one query run on it; nothing of this batch was published",
            )
        yield


def _check(targets: Sequence[Target], owner: Owner) -> None:
    """Each folder, before any of them is claimed."""
    for target in targets:
        target.check(owner)


def _owner(plan: Any, checkpoint: Path, card: Card | None, first: int) -> Owner:
    """The checkpoint as it stands at this start. Without a card it gets a new identity, which is written when the start is
    allowed.
    """
    run = secrets.token_hex(8)
    if card is None:
        return Owner(checkpoint, secrets.token_hex(16), plan.cell.query, -1, (), run, "")
    planned = first + last_number(checkpoint, "offsets")
    return Owner(checkpoint, card.id, plan.cell.query, planned, card.runs, run, card.target)


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
    """The last batch that is planned ("offsets") or done ("commits"); -1 for none.

    Spark names these files by batch; others in the folder (checksums, temporary ones) have no plain number.
    """
    return max((int(file.name) for file in (checkpoint / kind).glob("*") if file.name.isdigit()), default=-1)


def read_card(checkpoint: Path) -> Card | None:
    """What a checkpoint was started with; an error if something else than plait's started it, or another version of it."""
    card = checkpoint / Card.NAME
    if card.exists():
        try:
            return Card.read(card.read_text(), str(checkpoint))
        except (ValueError, OSError) as error:
            raise RunError(
                f"{str(card)!r} can't be read",
                why=str(error),
                do="Bring it back, or begin anew with another checkpoint",
            ) from None
    if (checkpoint / "offsets").exists():
        raise RunError(
            f"The checkpoint {str(checkpoint)!r} was not written by write_ordered",
            why=f"it has offsets and no {Card.NAME}",
            do="Use another checkpoint folder",
        )
    return None


def check_logs(checkpoint: Path) -> None:
    """Refuse a checkpoint in which a log of files read is gone.

    Spark does not notice where the only file of a log is gone, if the last batch read none of it: it begins the log anew, under a
    number that it takes for read, and never reads the files that came since. Which log is whose is not asked, and a source may
    stand in the offsets several times: but no more logs may be empty than there are sources that have read nothing.
    """
    planned = last_number(checkpoint, "offsets")
    if planned < 0:
        return
    with contextlib.suppress(OSError):
        # Its version and its settings, then a line for each source.
        sources = (checkpoint / "offsets" / str(planned)).read_text(errors="replace").split("\n")[2:]
        empty = sorted(folder.name for folder in (checkpoint / "sources").iterdir() if _last_of_log(folder) < 0)
        if len(empty) > sum(line.strip() == "-" for line in sources):
            raise RunError(
                f"The checkpoint {str(checkpoint)!r} is damaged",
                why=f"a file of {str(checkpoint / 'sources')!r} is gone: nothing is in {', '.join(empty)}",
                do="Bring back a copy of the checkpoint, and of its folder of results as it was then; or begin anew with both",
            )


def _last_of_log(folder: Path) -> int:
    """The last batch of a log of files read, which may be a compact one; -1 for none."""
    names = [file.name.removesuffix(".compact") for file in folder.glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def check_not_left(checkpoint: Path, card: Card) -> None:
    """Refuse a checkpoint that `relayout` has moved elsewhere."""
    if card.left is not None:
        raise RunError(
            f"The checkpoint {str(checkpoint)!r} has been left for {card.left!r}",
            why="relayout has moved its state there, and two queries would both publish what comes next",
            do="Use that one",
        )


def write_card(checkpoint: Path, card: Card) -> None:
    """Write the card, whole or not at all. The folder is made if it is not there."""
    paths.folder(checkpoint, _WHAT)
    try:
        put(checkpoint / Card.NAME, card.text())
    except OSError as error:
        raise RunError(f"The checkpoint {str(checkpoint)!r} can't be written", why=str(error)) from None
