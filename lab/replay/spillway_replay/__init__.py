"""Bursts of workloads onto fragmented clusters: what was promised, what the members could make of it."""
