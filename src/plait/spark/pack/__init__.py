"""On the source's tasks: rows read, ordered by position, and packed for the cells."""
