"""Orders of transfers, and sets of tensors that leave: ordered schedules, and annealing."""
