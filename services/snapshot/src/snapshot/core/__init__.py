"""Decides what a cluster's capacity is. Pure: changes and times in, values out; no IO, clock, chance, log, asyncio."""
