"""Decides how many replicas a workload has."""
