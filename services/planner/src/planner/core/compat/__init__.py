"""Reproduces other schedulers' strategies exactly: Karmada's and KubeAdmiral's arithmetic, to the replica.

All are pure functions from names and whole replicas to replicas by cluster. docs/strategies.md lists them with their
differences and the sources of their figures.
"""
