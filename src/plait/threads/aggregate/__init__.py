"""Aggregates on threads: update threads behind a gate (TuML), or windows that pushing threads share (WiML)."""
