"""In a cell: what arrives, how far the sources are, and each operator's part of the work."""
