"""Studies of the ScaleJoin paper's evaluation (section VI)."""

from __future__ import annotations

from plait_bench.papers.scalejoin.scaling import figure_5, figure_6
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
)  # fmt: skip
