"""Implements KEDA's own rules: what its triggers say, and how it scales between zero and one. Pure.

Source of all of them: kedacore/keda 8b4f083c (2026-08-20).
"""
