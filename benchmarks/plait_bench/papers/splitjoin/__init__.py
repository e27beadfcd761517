"""Studies of the SplitJoin paper's evaluation (section 7). Figure 14 is a picture of the pipeline, and no measurement."""

from __future__ import annotations

from plait_bench.papers.splitjoin.latency import figure_13, figure_15, figure_18
from plait_bench.papers.splitjoin.ordering import figure_19
from plait_bench.papers.splitjoin.throughput import figure_12, figure_16, figure_17
from plait_bench.papers.study import Study

STUDIES: tuple[Study, ...] = (
    Study(
        "splitjoin", "figure 12", "Throughput over windows of time beside low-latency handshake join", figure_12,
        "Both scale up to 28 of 32 cores; SplitJoin sustains up to 60 % more (4,400 t/s with 28 join cores over 15 minutes).",
    ),
    Study(
        "splitjoin", "figure 13", "Visiting latency beside low-latency handshake join", figure_13,
        "With four join cores about the same; with 28 it is 8.1 ms, and 26 ms in low-latency handshake join, 3.3 times as much.",
    ),
    Study(
        "splitjoin", "figure 15", "Latency by stage over windows of time", figure_15,
        "Distribution and execution take less with more join cores; gathering in order takes most.",
    ),
    Study(
        "splitjoin", "figure 16", "Throughput over windows that count", figure_16,
        "About 20 % more than over windows of time: 5,200 t/s over 2^21 tuples with 28 join cores, where 15 minutes have 4,400.",
    ),
    Study(
        "splitjoin", "figure 17", "Throughput by selectivity", figure_17,
        "Robust to selectivity, up to windows of 28 x 2^15 tuples.",
    ),
    Study(
        "splitjoin", "figure 18", "Latency by stage over windows that count", figure_18,
        "With 28 join cores visiting latency is more than 2.5 times lower than over windows of time, and 8.3 times lower than "
        "low-latency handshake join's.",
    ),
    Study(
        "splitjoin", "figure 19", "Throughput by how exactly results are ordered", figure_19,
        "With sub-windows of 2^15 marks every 2^11 comparisons and more cost next to nothing; from 2^10 down to 1 they cost more "
        "and more.",
    ),
)  # fmt: skip
