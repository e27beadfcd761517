"""The commands of `plait`: a module each, which has it as `command`. A new one is a new module here, and nothing else."""
