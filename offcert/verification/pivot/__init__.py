"""The pivot dynamic program, run again."""
