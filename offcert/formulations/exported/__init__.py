"""Problems as models in files, for solvers that are not called from here."""
