"""Windowed aggregates in one thread: accumulators, groups, panes of time and of tuples, partial panes."""
