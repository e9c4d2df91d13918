"""Implements KEDA's own rules: the values of its triggers, and the scaling between zero and one. Pure.

Source of all of them: kedacore/keda 8b4f083c (2026-08-20).
"""
