"""Reads the log into the planner's state, and writes copies of records and placements into the store."""
