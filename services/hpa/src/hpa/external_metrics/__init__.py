"""Reads metrics from systems outside of the fleet: Kafka clusters and Prometheus servers of users."""
