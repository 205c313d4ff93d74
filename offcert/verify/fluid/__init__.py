"""Multipliers and case distinctions of fluid models, in rationals."""
