"""How planners and hand-made rules of today decide what stays, runs again or leaves."""
