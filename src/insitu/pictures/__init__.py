"""Pictures of chunks: where the bytes of an array lie, for notebooks, reports and the explorer."""
