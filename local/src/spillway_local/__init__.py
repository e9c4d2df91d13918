"""Spillway's parts as processes on one machine: Kafka, Redis, members, services."""
