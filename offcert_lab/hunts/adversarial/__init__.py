"""Search for the problems on which a method, a bound or an assumption does worst."""
