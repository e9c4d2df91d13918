"""Implements rules that Kubernetes and KEDA do not have: calendar windows, time to drain, and headroom."""
