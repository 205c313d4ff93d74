"""Orders of transfers, and sets of tensors that leave: ordered schedules, and annealing.

Its size: schedules whose transfers have an order are evaluated in compiled code, and searched by
annealing, by insertion, by sets and for the fewest bytes.
"""
