"""Computes how many more replicas clusters take beside reserved ones. What nodes take: spillway.feasibility."""
