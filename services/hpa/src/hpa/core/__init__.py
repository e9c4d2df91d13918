"""How many replicas: pure decisions over values. No IO, clock, randomness, logging or protobuf in here."""
