"""HDF4: the scientific datasets (SDS) that MODIS and others are made of."""
