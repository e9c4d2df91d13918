"""What is heard of a workload, and what of it can be believed at an instant."""
