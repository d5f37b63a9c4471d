"""GRIB 1 and 2: messages, one after the other, each a field on a grid."""
