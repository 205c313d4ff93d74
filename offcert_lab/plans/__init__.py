"""Audits of plans that other people and programs have made."""
