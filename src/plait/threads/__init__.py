"""Executor 1: joins and aggregates on threads of this process.

run         Run: push, results, close, drain, stats       options    what on_threads takes, checked
intake      a stream's sources: late, behind, seq          pushing    rows into arenas and the gate
columns     what the condition reads, as typed columns     memory     segments, arenas, workers' words
pausing     letting all workers stand still                watching   who waits for whom
results     pairs into Arrow batches                       stats      what was measured
aggregating update threads of an aggregate                 aggregate_results  rows of closed windows, in order
"""
