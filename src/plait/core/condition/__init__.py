"""From a bound condition to kernel source: terms, one-sided leaves, exact values, and modules of text on disk."""
