"""COMBINE: what one dataset do these many files make? Decided on tables, with xarray's rules, one dataset made at the end."""
