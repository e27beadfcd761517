"""The W-Hive: windows to which many threads add at once, lock-free between entering and leaving."""
