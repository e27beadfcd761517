"""How tests ask what a study made of rows that were made up."""

from __future__ import annotations

from plait_bench.papers.study import Found


def holds(found: Found, words: str) -> bool:
    """Whether the one claim with these words holds."""
    [claim] = [each for each in found.claims if words in each.says]
    assert claim.shown
    return claim.holds


def drawn(found: Found) -> None:
    """What it found can be drawn and says something."""
    from plait_bench.papers.drawing import svg

    assert found.sentence.endswith(".")
    assert found.departs.endswith(".")
    assert found.rows
    assert svg(found.panels).startswith("<svg")
