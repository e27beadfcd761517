"""Joins on threads: the engine, what workers read of rows, as-of."""
