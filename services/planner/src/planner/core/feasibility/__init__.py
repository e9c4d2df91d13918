"""How many more replicas clusters take beside what is reserved. What their nodes take: spillway.feasibility."""
