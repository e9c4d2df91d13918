"""Where replicas go: pure decisions over values. No IO, clock, randomness, logging or protobuf in here."""
