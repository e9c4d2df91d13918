"""Decides where replicas go: pure functions over values. No IO, clock, randomness, logging or protobuf in here."""
