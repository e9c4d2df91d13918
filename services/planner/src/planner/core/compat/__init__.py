"""Reproduces other schedulers' strategies exactly: Karmada's and KubeAdmiral's arithmetic, to the replica.

Pure functions: names and whole replicas in, replicas by cluster out. docs/strategies.md lists them, how they differ and
where their figures come from.
"""
