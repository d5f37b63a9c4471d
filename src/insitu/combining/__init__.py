"""COMBINE: many files as one dataset, by xarray's rules, decided on tables of chunks."""
