"""Kubernetes' objects: their fields, amounts, pod shapes, and texts of manifests. Pure."""
