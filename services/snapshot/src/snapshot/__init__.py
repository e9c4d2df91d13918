"""Decides what each cluster's capacity is now."""
