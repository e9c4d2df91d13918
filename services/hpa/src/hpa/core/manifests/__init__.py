"""Reads people's manifests of scale policies, or refuses them with the reason."""
