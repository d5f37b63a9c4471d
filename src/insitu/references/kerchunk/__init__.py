"""References in kerchunk's formats: JSON, Parquet, and one flat Parquet table."""
