"""Decides which nodes are lent, and each step of a loan. Pure: no IO, clock, random numbers, log or protobuf."""
