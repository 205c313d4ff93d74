"""What tests share: oracles, problems, networks, and what stands in for devices and processes."""
