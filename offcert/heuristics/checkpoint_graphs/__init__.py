"""The re-forwarding paper's algorithms for arbitrary graphs."""
