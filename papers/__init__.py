"""Code that only studies of the papers use: exact models of their restricted problems, networks.

It lies beside the package and is in no wheel; nothing in `offcert` knows it. `benchmarks/` and
`tests/` use it, and so do the examples of the theory (docs/theory) in a checkout.
"""
