"""Join systems of the papers as plans for workers, and the compiled loop that every worker runs.

plan        who stores, who compares, who shares: what a strategy decides
sequential, scalejoin, splitjoin, dpjoin    one strategy each: its paper, its invariant, its plan
layout      the memory of a worker, word by word
worker      the loop: read, store, probe, emit        probing    one batch against the windows
emitting    results into a worker's ring              gathering  workers' rings into one sequence
"""
