"""Keeps the records about a workload, and decides which of them count at an instant."""
