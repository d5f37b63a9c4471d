"""FITS: images and tables."""
