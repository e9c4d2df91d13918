"""Reads the manifests of scale policies that users declare, or refuses them with the reason."""
