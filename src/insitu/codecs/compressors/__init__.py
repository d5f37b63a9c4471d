"""Decompressors that no single format owns: deflate, Zstandard, Blosc, LZ4, szip and others."""
