"""Bounded input without a gate: rows are judged, put in order and joined a slab at a time."""
