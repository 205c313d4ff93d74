"""Steps under a plan beside plain ones: what `offcert train` runs, compares and reports."""
