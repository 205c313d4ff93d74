"""Commands that `offcert` finds by the entry points of this package."""
