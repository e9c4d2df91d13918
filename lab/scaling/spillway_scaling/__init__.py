"""Measures the autoscaler's decisions: queues, faults, restarts, modes and loops. Nothing here runs in production."""
