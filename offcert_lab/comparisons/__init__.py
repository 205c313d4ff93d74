"""Comparisons of methods with each other and with the certified optimum, as tables and curves."""
