"""Reads the log into the planner's state, and copies of it into the store."""
