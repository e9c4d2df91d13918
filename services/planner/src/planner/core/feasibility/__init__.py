"""Computes how many more replicas clusters take in addition to reserved ones; spillway.feasibility does nodes."""
