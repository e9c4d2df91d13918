"""Implements Kubernetes' autoscaler: which pods count, what metrics ask for, windows, rates, bounds and conditions."""
