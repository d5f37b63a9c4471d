"""CF decoding of stored values: packing, missing values, times, characters."""
