"""What a workload gets: its situation, its division over clusters, its parts with their versions, its record."""
