"""The papers' algorithms, their baselines and our local search: one file per algorithm.

Each is a function ``method(problem, **options) -> Plan``. One that does not apply to a problem, or
finds no plan, raises `offcert.core.errors.MethodError`; that never means that no plan exists.
"""
