"""TIFF: GeoTIFF, Cloud Optimized GeoTIFF and BigTIFF."""
