"""Results out of the cells: in order, once, into a folder or a user's sink."""
