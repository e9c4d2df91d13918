"""Keeps what the planner knows about the fleet and its workloads, and what it remembers between decisions."""
