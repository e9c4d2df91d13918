"""Plays bursts of workloads on fragmented clusters, and compares promised replicas with bound ones."""
