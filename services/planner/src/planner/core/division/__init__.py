"""Divides replicas over tiers and clusters."""
