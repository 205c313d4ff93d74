"""Everything that imports torch: networks, profiling, linearising and executing a plan."""
