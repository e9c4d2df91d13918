"""What the planner knows of the fleet and its workloads, and what it keeps between decisions."""
