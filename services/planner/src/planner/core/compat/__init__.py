"""Strategies that reproduce other schedulers exactly: Karmada's and KubeAdmiral's arithmetic, to the replica.

Pure: names and whole replicas in, replicas by cluster out. docs/strategies.md says which there are, how they differ and
where their figures come from.
"""
