"""Studies of the multiway aggregation paper's evaluation (section 7): figures 7 to 34 and table 2.

Figures 12, 17, 22, 27 and 34 are captions of groups of figures: each lays its group's rows beside one another.
"""

from __future__ import annotations

from functools import partial

from plait_bench.papers.aggregation import features, gate, inputs, queries, rates, stages, threads
from plait_bench.papers.study import Study

PAPER = "aggregation"
BETTER = "TuML-SC is above both multi-queues, whose throughput falls with the inputs."


def _by_inputs(number: int, name: str, title: str, published: str) -> Study:
    return Study(PAPER, f"figure {number}", f"{name} by inputs: {title}", partial(inputs.figure, name=name), published)


def _by_threads(number: int, name: str, published: str) -> Study:
    return Study(
        PAPER, f"figure {number}", f"{name}: TuML-MC by update threads", partial(threads.figure, name=name), published
    )


STUDIES: tuple[Study, ...] = (
    Study(PAPER, "table 2", "The twelve queries, by every design", queries.table_2,
          "Twelve queries on two data sets; OS on MQ, MQ_LF and TuML-SC, OI on MQ, MQ_LF and WiML."),
    Study(PAPER, "figure 7", "T-Gate beside a skip list: tuples sorted and their latency, by inputs", gate.figure_7,
          "With 20 inputs 2.2 against 1.5 million t/s, and about 1 against 1.6 ms."),
    Study(PAPER, "figure 8", "K-OS: how long input and output threads work on a tuple", stages.figure_8,
          "Output threads can do 100,000 (MQ), 130,000 (MQ_LF) and 160,000 (TuML-SC) t/s."),
    Study(PAPER, "figure 9", "K-OS: latency by the rate that is injected", rates.figure_9,
          "Latency falls with the rate, then explodes; TuML-SC sustains 1.6 times MQ's rate."),
    Study(PAPER, "figure 10", "K-OI: how long input and output threads work on a tuple", stages.figure_10,
          "A WiML input thread can do 22,000 t/s, its output thread 2 million."),
    Study(PAPER, "figure 11", "K-OI: latency by the rate that is injected", rates.figure_11,
          "WiML sustains about 400,000 t/s and has the lower latency at any rate."),
    Study(PAPER, "figure 12", "What T-Gate and W-Hive improve", rates.figure_12,
          "TuML-SC has 1.6 times MQ's throughput on K-OS."),
    _by_inputs(13, "k-OS", "243 keys, order-sensitive",
               "With 20 inputs TuML-SC has 2.9 times MQ's throughput and the lowest latency."),
    _by_inputs(14, "K-OS", "40,000 keys, order-sensitive", BETTER),
    _by_inputs(15, "k-OI", "243 keys, order-insensitive",
               "WiML rises to 2.6 million t/s, at about the same latency for any inputs."),
    _by_inputs(16, "K-OI", "40,000 keys, order-insensitive",
               "WiML rises to 430,000 t/s, at about the same latency for any inputs."),
    Study(PAPER, "figure 17", "What the number of keys does", features.figure_17,
          "More keys mean more results a window: lower throughput and higher latency of every design."),
    _by_inputs(18, "w-OS", "a tuple in 10 windows, order-sensitive", BETTER),
    _by_inputs(19, "W-OS", "a tuple in 20 windows, order-sensitive", BETTER),
    _by_inputs(20, "w-OI", "a tuple in 10 windows, order-insensitive", "WiML reaches 2.4 million t/s, 19 times MQ's."),
    _by_inputs(21, "W-OI", "a tuple in 20 windows, order-insensitive", "WiML reaches 1.4 million t/s, 16 times MQ's."),
    Study(PAPER, "figure 22", "What the number of windows that a tuple is in does", features.figure_22,
          "Twice the windows break throughput down: WiML from 2.4 to 1.4 million t/s."),
    _by_inputs(23, "f-OS", "mail addresses, order-sensitive", "TuML-SC is above both multi-queues."),
    _by_inputs(24, "F-OS", "mail or IP addresses, order-sensitive",
               "The function is so dear that TuML-SC comes close to MQ and MQ_LF."),
    _by_inputs(25, "f-OI", "mail addresses, order-insensitive", "WiML reaches about 615,000 t/s, 9 times MQ's."),
    _by_inputs(26, "F-OI", "mail or IP addresses, order-insensitive", "WiML reaches about 615,000 t/s, 9 times MQ's."),
    Study(PAPER, "figure 27", "What the function's cost does", features.figure_27,
          "TuML-SC improves less where the function is dear; WiML, which runs it in parallel, as much."),
    _by_threads(28, "k-OS", "It scales less than K-OS, whose output takes longer."),
    _by_threads(29, "w-OS", "It scales as W-OS does."),
    _by_threads(30, "f-OS", "Up to 12 threads, with 5 and 20 inputs."),
    _by_threads(31, "K-OS", "It scales better than k-OS."),
    _by_threads(32, "W-OS", "It scales as w-OS does, for all its windows: they mean more contention in the W-Hive."),
    _by_threads(33, "F-OS", "Up to 12 threads, with 5 and 20 inputs."),
    Study(PAPER, "figure 34", "How TuML-MC scales with its update threads, six queries", threads.figure_34,
          "Throughput grows with the threads and does not degrade beyond the best number of them."),
)  # fmt: skip
