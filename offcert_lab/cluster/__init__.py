"""Cells of a campaign on the workers of a cluster."""
