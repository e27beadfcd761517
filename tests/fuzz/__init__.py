"""Fuzzing, kept: random queries, data and deliveries, each case a function of its number and a recorded seed.

    python -m tests.fuzz threads --cases 200000 --seed 7 --processes 2
    python -m tests.fuzz spark --cases 2000 --seed 7
    python -m tests.fuzz inputs --kind sql csv --cases 100000 --seed 20     (bad input: see `tests.fuzz.inputs`)

A *group* is a query with its data and the reference's answer; a *case* is one delivery of a group to one run, compared with
that answer. Every `DELIVERIES` cases share a group. `values` makes arrays, `conditions` and `queries` groups, `deliveries`
runs on threads, `spark` runs there, `judge` says what is a difference, `shrinking` makes one small, `pool` runs many in
processes of their own, so that a case that hangs or takes its process down is reported by its number.
"""
