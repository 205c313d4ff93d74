"""The kinds of proofs: a dataclass whose fields a verifier reads, and beside it its rows."""
