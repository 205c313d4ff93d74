"""Segments: parts of a user's model that run again in the backward pass, under checkpointing.

Its size: what runs again must be proved to do what it did before. So everything that a segment
reads or changes is found (`state`, `reachable`, `code`, `settings`), put back (`snapshot`,
`restored`), compared byte by byte in a rehearsal (`keeper`, `fingerprint`), and named if it
deviates. PyTorch's checkpointing does none of this.
"""
