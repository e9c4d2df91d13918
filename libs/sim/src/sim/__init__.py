"""A simulated member cluster: the part of the Kubernetes API that Spillway uses, with a scheduler."""
