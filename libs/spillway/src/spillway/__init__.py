"""The library of Spillway's services: values, events, their wire form, and one adapter for each outside system."""
