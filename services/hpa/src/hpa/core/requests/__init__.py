"""Decides the outcome of each request, and makes its answer."""
