"""Claims of the offloading paper, evaluated on the table of a campaign."""
