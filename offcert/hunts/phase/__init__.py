"""Problems from the phase transition: where, in memory and bandwidth, proving takes longest."""
