"""Client and wire format of reductions next to the data."""
