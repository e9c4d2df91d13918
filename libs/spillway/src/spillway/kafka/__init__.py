"""Kafka: the bus on it, the access of clients, and the topics. Besides this package only hpa imports aiokafka."""
