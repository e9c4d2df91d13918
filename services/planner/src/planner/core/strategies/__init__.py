"""Ways to divide replicas over clusters: our own splits inside a tier, and two other schedulers' reproduced exactly.

Pure: names and whole replicas in, replicas by cluster out. docs/strategies.md says which there are, how they differ and
where the figures of the compatible ones come from.
"""
