"""Kafka: the bus on it, how clients get to it, its topics. Nothing else imports aiokafka."""
