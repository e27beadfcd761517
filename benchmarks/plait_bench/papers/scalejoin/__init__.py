"""Studies of the ScaleJoin paper's evaluation (section VI)."""

from __future__ import annotations

from plait_bench.papers.scalejoin.gates import figure_7a
from plait_bench.papers.scalejoin.latency import figure_7b
from plait_bench.papers.scalejoin.scaling import figure_5, figure_6
from plait_bench.papers.scalejoin.skew import figure_8a, figure_8b, figure_8c
from plait_bench.papers.study import Study

STUDIES: tuple[Study, ...] = (
    Study(
        "scalejoin", "figure 5", "Comparisons and tuples a second by threads and window sizes", figure_5,
        "Of S1 (48 cores) 4 billion c/s, and 5,100, 3,500 and 3,000 t/s with windows of 5, 10 and 15 minutes; of S2 (16) 1.4 "
        "billion, and 3,000, 2,100 and 1,750; 100 to 80 million c/s a thread, which differ by at most 4 %.",
    ),
    Study(
        "scalejoin", "figure 6", "Comparisons a second beside the handshake joins", figure_6,
        "ScaleJoin makes about 2.5 billion c/s more than Handshake join with 48 threads of S1, and almost 1 billion more on S2 "
        "with hyper-threading.",
    ),
    Study(
        "scalejoin", "figure 7a", "Tuples a second through a ScaleGate by sources and readers", figure_7a,
        "The rate rises with the sources to about 150,000 t/s, 50 times what the join takes in, and does not fall with readers.",
    ),
    Study(
        "scalejoin", "figure 7b", "Latency at the highest rates by threads and window sizes (7b and 7c)", figure_7b,
        "At most 70 ms, in proportion to the threads; 10 ms more from 16 threads on, the cores of S2.",
    ),
    Study(
        "scalejoin", "figure 8a", "Skew: 1 R and 4 S sources of distinct constant rates, second by second", figure_8a,
        "10 threads make about 65 million c/s each; their standard deviation is about 0.05 %.",
    ),
    Study(
        "scalejoin", "figure 8b", "Skew: 3 R and 2 S sources of fluctuating rates, second by second", figure_8b,
        "12 threads make 18.5 to 55 million c/s each, as the rates go; their standard deviation is about 0.1 %.",
    ),
    Study(
        "scalejoin", "figure 8c", "Skew: 4 R and 2 S sources with sudden peaks, second by second", figure_8c,
        "14 threads; their standard deviation is about 0.1 %.",
    ),
)  # fmt: skip
