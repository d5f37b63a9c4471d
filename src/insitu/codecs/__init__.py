"""How do bytes become values? One chain decoder, one table of codecs."""

from insitu.codecs.chain import Decoder, decode, decode_box, prepare

__all__ = ["Decoder", "decode", "decode_box", "prepare"]
