"""How a workload is placed: its situation, its division over clusters, its parts with their versions, its record."""
