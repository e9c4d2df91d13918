"""Decides which nodes are lent, and each step of a loan. Pure: no IO, clock, chance, log or protobuf."""
