"""The stage view: a network as a chain of stages, as the papers' algorithms take it.

`problem` makes the problem of a network, `linearise` cuts it where exactly one value is live, and
`recording` runs a step of it. Training by a plan needs the clocks of `offcert.profile`.
"""
