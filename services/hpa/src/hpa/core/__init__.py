"""Decides how many replicas a workload has, in pure functions: no IO, clock, randomness, logging or protobuf."""
