"""Users' operators: buckets with their state and timers, in plain Python and compiled."""
