"""Explains why replicas are where they are, and what would be otherwise."""
