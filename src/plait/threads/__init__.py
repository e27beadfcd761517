"""Executor 1: joins, aggregates and users' operators on threads of this process.

run        `Run`: push, results, close, drain, stats       options   what `on_threads` takes, checked
plan       which strategy each operator comes to           dag       queries of queries: results carried on
together   what the operators of a run have in common      ground    what an engine stands on: streams, gate, memory
engine     what the engines of all operators share         parts     the parts of a run as the others see them
words      the words that all engines share                pause     letting all workers stand still
payload    whole rows, until no result can name them       halt      the word that stops workers, and waking sleepers
results    pairs into Arrow batches                        stats     what a run measures of itself
guard      locks that an interrupt can't leave taken

input/     from a user's batch to the gate                 gate/     many sources in, one total order out
join/      workers, their loop, the papers' strategies     aggregate/  update threads, or windows that all share
operator/  shares of a user's buckets                      elastic/  threads that come and go
atomics/   the steps out of which shared memory is made
"""
