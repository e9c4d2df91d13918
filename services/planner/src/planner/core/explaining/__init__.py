"""Explains why replicas are where they are, and simulates what would be if the fleet or a request were different."""
