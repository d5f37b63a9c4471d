"""CF conventions: stored values to the values that they mean (packing, missing values, times, characters)."""
