"""Decoding of chunks: codec chains, the codec registry, buffers; compressors and filters."""

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes

if TYPE_CHECKING:
    from insitu.codecs.chain import Decoder, decode, prepare

__all__ = ["Decoder", "decode", "prepare"]

# `insitu --version` names the linked libraries, without NumPy.
__getattr__ = lazy_attributes(__name__, dict.fromkeys(__all__, "insitu.codecs.chain"))
