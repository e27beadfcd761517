"""Studies of STRETCH's model (section 8) and evaluation (section 9).

parallelism        figures 3, 4a and 4b
epochs             figure 5, a study a column, and table 2
synthetic_costs    how figure 4a is run
"""

from __future__ import annotations

from plait_bench.papers.stretch.epochs import decommissioning, intra_epoch, provisioning, reconfiguration, table_2
from plait_bench.papers.stretch.parallelism import figure_3, figure_4a, figure_4b
from plait_bench.papers.study import Study

STUDIES: tuple[Study, ...] = (
    Study("stretch", "figure 3", "How far virtual and pure shared-nothing parallelism scale, by the model", figure_3,
          "The model's curves cross at 6 threads (pure) and 11 (virtual)."),
    Study("stretch", "figure 4a", "Virtual and pure parallelism with the model's costs given to their threads", figure_4a,
          "Both follow the model, virtual with the larger deviation; virtual has the higher throughput and the lower "
          "latency; d^I is 0.7 ms."),
    Study("stretch", "figure 4b", "An operator that only forwards tweets, virtual and pure", figure_4b,
          "4.3 million tweets; virtual parallelism loses a little by more threads, pure starts lower and loses faster; "
          "latency stays below 20 ms and above 200 ms."),
    Study("stretch", "figure 5 intra-epoch", "Rates, comparisons and latency by threads, beside ScaleJoin and a single thread",
          intra_epoch,
          "Comparisons grow linearly with threads up to 36 cores, as ScaleJoin's do; a single thread compares as much "
          "as one of either, at a lower latency; windows of 5 minutes."),
    Study("stretch", "figure 5 provisioning", "A load that steps from 70 to 120 percent of what threads sustain", provisioning,
          "18 threads become 31; throughput rises and latency does not."),
    Study("stretch", "figure 5 decommissioning", "A load that steps from 70 to 30 percent of what threads sustain",
          decommissioning,
          "18 threads become 7, at the same throughput as ScaleJoin and a slightly lower latency."),
    Study("stretch", "figure 5 reconfiguration", "How long a reconfiguration takes, and how even the work is", reconfiguration,
          "Always less than 40 ms; threads' loads differ by 1 percent in most cases and by 2 at most."),
    Study("stretch", "table 2", "Threads that come and go with the paper's steps of load", table_2,
          "From 5, 9, 18, 30 and 40 threads to 9, 16, 31, 52, 69, and to 2, 3, 7, 12, 17."),
)  # fmt: skip
