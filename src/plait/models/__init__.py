"""The papers' analytical models: what a join or an aggregate should cost, from a few numbers of a machine and of the streams.

A module a paper. Each function has its equation's number, the paper's symbols spelled out, and units: seconds, tuples a second,
comparisons a second. `plait calibrate` measures the numbers of this machine, and `auto` asks the models what to do with them
(docs/models.md).

    scalejoin     comparisons a second (section II), C_max, T_max and the root law (section VI)
    splitjoin     processing and visiting latency of handshake join and SplitJoin, equations 1 to 6
    dpjoin        bandwidth, optimal parallelism, latency of an m x n layout, equations 1 to 9
    stretch       how far virtual and pure shared-nothing parallelism scale, section 8 with table 1
    aggregation   which thread does which stage of a multiway aggregate, and what that lets through, sections 3 to 7

The rule of this package: arithmetic alone. Nothing here measures, runs or reads a file, and nothing imports Numba or Spark.
Where a formula departs from what the paper prints, its docstring says so and why.
"""
