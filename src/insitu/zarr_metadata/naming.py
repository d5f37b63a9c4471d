"""Names and configurations of codecs in Zarr V2 and V3 documents, as other readers know them."""

from __future__ import annotations

from typing import Any

from insitu.errors import UnsupportedError
from insitu.model import Codec, Encoding

__all__ = ["is_standard", "to_v2", "to_v3"]

_NUMCODECS = frozenset({
    "adler32", "astype", "base64", "bitround", "blosc", "bz2", "crc32", "crc32c", "delta", "fixedscaleoffset",
    "fletcher32", "gzip", "jenkins_lookup3", "json2", "lz4", "lzma", "msgpack2", "packbits", "pcodec",
    "quantize", "shuffle", "vlen-array", "vlen-bytes", "vlen-utf8", "zfpy", "zlib", "zstd",
})  # fmt: skip
"""Codecs that numcodecs registers, which readers of V2 have."""
_IMAGECODECS = "imagecodecs_"
"""Prefix of the codecs that `imagecodecs.numcodecs.register_codecs()` adds, for TIFF files."""
_KERCHUNK_OPTIONS = {"grib": frozenset({"var", "dtype"}), "record_member": frozenset({"member", "dtype"})}
"""Codecs that kerchunk registers with numcodecs, and their options."""
_CHECK_OPTIONS = {"grib": frozenset({"grid", "parameter"})}
"""Options that only check the data: they are left out for other readers."""
_PREDICTORS = frozenset(
    {"imagecodecs_delta", "imagecodecs_floatpred", "imagecodecs_packints", "imagecodecs_byteshuffle"}
)
_OVER_ARRAYS = frozenset({"astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize"})
_TO_BYTES = frozenset({"vlen-utf8", "vlen-bytes", "vlen-array", "zfpy", "pcodec"})
_NATIVE = frozenset({"gzip", "zstd", "blosc", "crc32c", "vlen-utf8", "vlen-bytes"})
_COMPRESSORS = frozenset({"blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd", "zfpy", "pcodec", "grib"})
_CHECKSUM_BYTES = dict.fromkeys(("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"), 4)
_SHUFFLES = {0: "noshuffle", 1: "shuffle", 2: "bitshuffle"}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "zlib": {"level": 1}, "gzip": {"level": 5}, "zstd": {"level": 0}, "bz2": {"level": 1}, "lz4": {"acceleration": 1},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
}  # fmt: skip


def is_standard(encoding: Encoding) -> bool:
    """Return whether other readers can decode all codecs of an encoding."""
    try:
        for codec in encoding.codecs:
            _standard_name(codec)
    except UnsupportedError:
        return False
    return True


def to_v2(encoding: Encoding) -> tuple[list[dict[str, Any]] | None, dict[str, Any] | None]:
    """Return `filters` and `compressor` of a V2 document."""
    _check_shuffles(encoding)
    rows = [{"id": _standard_name(codec), **_numcodecs_configuration(codec)} for codec in encoding.codecs]
    compressor = rows.pop() if rows and _is_compressor(rows[-1]["id"]) else None
    return rows or None, compressor


def _check_shuffles(encoding: Encoding) -> None:
    """Refuse a checksum that is shuffled with values it is no multiple of: HDF5 leaves the rest as it is behind whole
    elements, numcodecs takes no rest.
    """
    checksum_bytes = 0
    for codec in encoding.codecs:
        name = codec.name.removeprefix("numcodecs.")
        checksum_bytes += _CHECKSUM_BYTES.get(name, 0)
        if name == "shuffle" and checksum_bytes % int(codec.configuration.get("elementsize", 4)):
            raise UnsupportedError("no other reader of Zarr shuffles values with a checksum behind them, as HDF5 does")


def _is_compressor(name: str) -> bool:
    return name in _COMPRESSORS or (name.startswith(_IMAGECODECS) and name not in _PREDICTORS)


def to_v3(encoding: Encoding) -> list[dict[str, Any]]:
    """Return `codecs` of a V3 document."""
    _check_shuffles(encoding)
    rows: list[dict[str, Any]] = []
    if encoding.order is not None:
        rows.append({"name": "transpose", "configuration": {"order": list(encoding.order)}})
    codecs = list(encoding.codecs)
    filters = 0
    while codecs and _standard_name(codecs[0]) in _OVER_ARRAYS:
        rows.append(_codec_v3(codecs.pop(0), encoding))
        filters += 1
    if codecs and _standard_name(codecs[0]) in _TO_BYTES:
        rows.append(_codec_v3(codecs.pop(0), encoding))
    else:
        endian = encoding.dtype.str[0]
        if endian == ">" and filters:
            raise UnsupportedError("Zarr V3 cannot hold big-endian values behind codecs that work on numbers")
        wide = encoding.dtype.itemsize > 1 and encoding.dtype.kind not in "SV"
        order = (
            {"configuration": {"endian": "big" if endian == ">" else "little"}} if wide or encoding.dtype.names else {}
        )
        rows.append({"name": "bytes", **order})
    return rows + [_codec_v3(codec, encoding) for codec in codecs]


def _codec_v3(codec: Codec, encoding: Encoding) -> dict[str, Any]:
    name = _standard_name(codec)
    if name.startswith(_IMAGECODECS) or name in _KERCHUNK_OPTIONS:
        raise UnsupportedError(f"Zarr V3 has no name for its codec {name!r}; Zarr V2 has")
    configuration = _numcodecs_configuration(codec)
    if name == "zstd":
        configuration = {"level": configuration["level"], "checksum": bool(configuration.get("checksum", False))}
    elif name == "blosc":
        shuffle = configuration["shuffle"]
        configuration = {
            "typesize": configuration.get("typesize") or max(encoding.dtype.itemsize, 1),
            "cname": configuration["cname"],
            "clevel": configuration["clevel"],
            "shuffle": shuffle if isinstance(shuffle, str) else _SHUFFLES.get(shuffle, "shuffle"),
            "blocksize": configuration["blocksize"],
        }
    elif name in ("vlen-utf8", "vlen-bytes", "crc32c"):
        configuration = {}
    if name not in _NATIVE:  # zarr-python wants a configuration of these, even an empty one
        return {"name": f"numcodecs.{name}", "configuration": configuration}
    return {"name": name, "configuration": configuration} if configuration else {"name": name}


def _numcodecs_configuration(codec: Codec) -> dict[str, Any]:
    """Return the configuration with the defaults of numcodecs filled in."""
    name = codec.name.removeprefix("numcodecs.")
    own = {key: value for key, value in codec.configuration.items() if key not in _CHECK_OPTIONS.get(name, ())}
    explicit = {key: value for key, value in own.items() if value is not None or name not in _DEFAULTS}
    explicit = {**_DEFAULTS.get(name, {}), **explicit}
    if name == "blosc" and isinstance(explicit["shuffle"], str):
        numbers = {text: number for number, text in _SHUFFLES.items()}
        explicit["shuffle"] = numbers.get(explicit["shuffle"], 1)
    return explicit


def _standard_name(codec: Codec) -> str:
    name = codec.name.removeprefix("numcodecs.")
    options = codec.configuration.keys() - _CHECK_OPTIONS.get(name, frozenset())
    if not options <= _KERCHUNK_OPTIONS.get(name, options):
        raise UnsupportedError(f"kerchunk's codec {name!r} does not have the options {', '.join(codec.configuration)}")
    if name not in _NUMCODECS and name not in _KERCHUNK_OPTIONS and not name.startswith(_IMAGECODECS):
        raise UnsupportedError(f"no other reader of Zarr decodes its codec {name!r}")
    return name
