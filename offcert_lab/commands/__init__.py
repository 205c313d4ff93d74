"""Commands that `offcert` finds by the names of these modules."""
