"""What plait answered before its modules moved: see `record`."""
