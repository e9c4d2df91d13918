"""Which nodes are lent, and each step of a loan: pure decisions over values. No IO, clock, chance, log or protobuf."""
