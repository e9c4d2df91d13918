"""How many replicas nodes take, and how many more beside what is reserved."""
