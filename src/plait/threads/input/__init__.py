"""The way in: from a user's batch to the gate. Sources, progress, late and behind, the clock for idle sources."""
