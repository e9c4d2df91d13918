"""Computes the size of a workload from a policy of any kind and the workload's inputs."""
