"""Before anything runs: DataFrames, layouts, stages, settings, and what a checkpoint pins."""
