"""How replicas are divided over clusters."""
