"""Studies of the DP-Join paper's evaluation (section 5), in its order.

bandwidth        figures 6, 7a, 7b and table 1
latency          figures 8a, 8b and 9
layouts          how layouts are run flat out
single_tuples    how they are run tuple by tuple, and in real time
"""

from __future__ import annotations

from plait_bench.papers.dpjoin.bandwidth import figure_6, figure_7a, figure_7b, table_1
from plait_bench.papers.dpjoin.latency import figure_8a, figure_8b, figure_9
from plait_bench.papers.study import Study

STUDIES: tuple[Study, ...] = (
    Study("dpjoin", "figure 6", "How many workers each layout needs to find all pairs", figure_6,
          "Streams of 2,100 t/s and 300 s take 7 workers in a line, 8 in a rectangle, 9 in a square; 2 workers offer "
          "3,100 pairs/s and 4 6,200; one worker is 24 percent faster than one of Handshake Join."),
    Study("dpjoin", "figure 7a", "Scalability of the linear layout", figure_7a,
          "Near-optimal up to 16 workers; with 15 and 16 of them Emitter and Collector share cores with workers."),
    Study("dpjoin", "figure 7b", "The highest rate that is sustained, by workers and windows", figure_7b,
          "Windows of 900 s behave as those of 300 s at lower rates; 32 workers on 16 cores sustain about what 16 do."),
    Study("dpjoin", "table 1", "Bandwidth that layouts of as many workers offer", table_1,
          "6 workers: 9,301 pairs/s in a rectangle, 8,529 in a line; 9: 14,047 in a square, 13,599; 16: 21,740, 21,700 "
          "and 21,659."),
    Study("dpjoin", "figure 8a", "Latency in the course of a run, by layout", figure_8a,
          "Steady once windows are full; 0.95 ms in a square, 2.42 in a line; Handshake Join four orders of magnitude "
          "more."),
    Study("dpjoin", "figure 8b", "Latency by workers and layout, streams of equal rates", figure_8b,
          "The square layout has the lowest latency; 4 x 4 is best, slightly below 2 x 8."),
    Study("dpjoin", "figure 9", "Latency by workers and layout, one stream three times as fast", figure_9,
          "0.26 ms with 3 x 5 workers, 0.30 with 4 x 4; a line gets slower with more workers."),
)  # fmt: skip
