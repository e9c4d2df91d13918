"""Keeps the state of loans and needs, decides which nodes are recalled, and decides requests about lending."""
