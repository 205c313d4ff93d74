"""Offloading and recomputation together on small chains, exactly, under any of the assumptions.

`assumptions` names what the combined paper assumes, `strategies` lists what may run in the order of
its computing time, `transfers` and `turned_cpsat` solve the transfers of one execution, and `exact`
goes through the list until nothing that is left can be shorter.
"""
