"""Users' operators on threads: shares of their buckets behind a gate."""
