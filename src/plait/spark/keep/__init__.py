"""What outlives a batch: chunks, control events, the checkpoint's card, other layouts for a stopped query."""
