"""Networks, traces, platforms, units, documents: common to all questions; no solver, no torch."""
