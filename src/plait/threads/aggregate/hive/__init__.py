"""The W-Hive: windows to which many threads add at once, in memory that no lock guards."""
