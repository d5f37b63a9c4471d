"""Client and wire format of servers that decode and reduce next to the data."""
