"""HDF5 objects: groups, datasets and links, and the virtual arrays of datasets."""
