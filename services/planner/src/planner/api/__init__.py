"""Serves the requests of callers: reads, checks, gathers and answers them. The decisions are in core/."""
