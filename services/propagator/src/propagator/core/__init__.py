"""Chooses the next step from the objects that exist to the ones that are wanted. All functions are pure."""
