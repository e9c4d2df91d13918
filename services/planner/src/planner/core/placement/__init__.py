"""Places a workload: its situation, its division over clusters, its parts with their versions, and its record."""
