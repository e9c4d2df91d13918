"""Decides what a cluster's capacity is. All modules are pure: no IO, clock, chance, log or asyncio."""
