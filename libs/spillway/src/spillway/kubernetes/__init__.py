"""Kubernetes' objects as others write them: fields, amounts, shapes of pods, texts of manifests. Pure."""
