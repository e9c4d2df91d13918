"""Compares the planner's feasibility with the Kubernetes scheduler's own plugins. See ../README.md."""
