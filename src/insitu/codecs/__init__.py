"""Decoding of chunks: codec chains, the codec registry, buffers; compressors and filters."""

from insitu.codecs.chain import Decoder, decode, decode_box, prepare

__all__ = ["Decoder", "decode", "decode_box", "prepare"]
