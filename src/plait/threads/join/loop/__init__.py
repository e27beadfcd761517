"""The compiled loop that every worker of a join runs: read, store, probe, emit; and what it touches."""
