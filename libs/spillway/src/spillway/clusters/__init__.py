"""Clusters: access to a Kubernetes API, its credentials, the limits on its answers, and our rights there."""
