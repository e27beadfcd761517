"""Studies of the DP-Join paper's evaluation."""

from __future__ import annotations

from plait_bench.papers.study import Study

STUDIES: tuple[Study, ...] = ()
