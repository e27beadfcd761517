"""From a bound condition to kernel source: terms, one-sided leaves, exact values, and modules of text on disk."""

from plait.predicates.check import check_compiles

__all__ = ["check_compiles"]
