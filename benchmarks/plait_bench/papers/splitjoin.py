"""Studies of the SplitJoin paper's evaluation."""

from __future__ import annotations

from plait_bench.papers.study import Study

STUDIES: tuple[Study, ...] = ()
