"""Reads and writes the objects of one cluster."""
