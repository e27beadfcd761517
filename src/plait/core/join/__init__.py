"""A join's window in one thread: segments in total order, an index over them, pairs in result order."""
