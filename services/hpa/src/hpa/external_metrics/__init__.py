"""Asks metric systems outside of the fleet: other people's Kafka and Prometheus."""
