"""Codecs of other packages: decoding through classes registered with numcodecs or zarr.

numcodecs serves Zarr v2 and the `numcodecs.*` names of v3, zarr serves v3. Pickles are never
loaded, even if a codec for them is registered: data must not run code.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Coroutine
from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import (
    MAX_UNDECLARED_BYTES,
    BufferSpec,
    Configuration,
    Data,
    DecodeStep,
    Octets,
    as_octets,
)
from insitu.codecs.libraries import find_function
from insitu.errors import CodecError, UnknownCodecError

__all__ = ["find_external_step"]

REFUSED_CODECS = frozenset({"pickle"})


FILL_KEY = "$fill"
"""Key in a configuration: the fill value of a shard's inner chunks, one element in base64.

It is ours and not the codec's, so it is taken out before the codec is made.
"""


def find_external_step(name: str, configuration: Configuration, form: BufferSpec) -> DecodeStep | None:
    """Return a step that decodes through the registered class, or None if there is no such class.

    Parameters
    ----------
    name
        Name in the metadata, without the prefix `numcodecs.`.
    configuration
        Its parameters.
    form
        The data that the codec was given.

    Raises
    ------
    UnknownCodecError
        For pickles.
    """
    if name in REFUSED_CODECS:
        raise UnknownCodecError(
            f"codec {name!r} is refused: loading pickles would run any code that the data contains",
            codec=name,
            hint="Write the data with another codec, e.g. vlen-utf8 or json2",
        )
    return _numcodecs_step(name, configuration, form) or _zarr_step(name, configuration, form)


def _numcodecs_step(name: str, configuration: Configuration, form: BufferSpec) -> DecodeStep | None:
    get = find_function("numcodecs.registry", "get_codec")
    if get is None:
        return None
    if name.startswith("imagecodecs_") and (register := find_function("imagecodecs.numcodecs", "register_codecs")):
        register(name, verbose=False)
    try:
        codec = get({"id": name, **configuration})
    except ValueError:
        # numcodecs has no codec of that name; UnknownCodecError of theirs is a ValueError.
        return None
    except ImportError as error:
        raise UnknownCodecError(
            f"codec {name!r} needs a library that is not installed ({error})",
            codec=name,
            hint=f"Try `pip install {name}`",
        ) from error
    except Exception as error:  # whatever a class of another package raises for its parameters
        raise _configuration_error(name, error) from error

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        # External classes get a copy: our buffers are reused for the next chunk.
        return _bytes_or_objects(codec.decode(raw.tobytes()), form)

    return DecodeStep(name, run, _unknown_output(form), uses_library=True)


def _zarr_step(name: str, configuration: Configuration, form: BufferSpec) -> DecodeStep | None:
    get = find_function("zarr.registry", "get_codec_class")
    if get is None or form.dtype is None or form.shape is None:
        return None
    try:
        found = get(name)
    except (KeyError, ValueError):
        # Some versions of zarr raise a KeyError, others an error of their own that is a ValueError.
        return None
    # Not public: zarr's public codec class takes an `ArraySpec`, which zarr exports nowhere, and a
    # prototype, which only newer releases export.
    from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec
    from zarr.core.array_spec import ArrayConfig, ArraySpec
    from zarr.core.buffer import default_buffer_prototype
    from zarr.dtype import parse_dtype

    prototype = default_buffer_prototype()
    settings = {key: value for key, value in configuration.items() if key != FILL_KEY}
    try:
        kind = parse_dtype(form.dtype, zarr_format=3)
        fill = kind.default_scalar()
        if FILL_KEY in configuration:
            element = np.frombuffer(base64.b64decode(configuration[FILL_KEY]), form.dtype, count=1)[0]
            fill = kind.cast_scalar(element)
        spec = ArraySpec(form.shape, kind, fill, ArrayConfig("C", write_empty_chunks=True), prototype)
        codec = found.from_dict({"name": name, "configuration": settings}).evolve_from_array_spec(spec)
        after = codec.resolve_metadata(spec)
    except Exception as error:  # whatever zarr or a class of another package raises for its parameters
        raise _configuration_error(name, error) from error
    to_array = isinstance(codec, ArrayArrayCodec)

    def run(data: Data, out: Octets | None) -> Data:
        raw = as_octets(data)
        buffer: Any
        if to_array:
            buffer = prototype.nd_buffer.from_numpy_array(raw.view(after.dtype.to_native_dtype()).reshape(after.shape))
        else:
            buffer = prototype.buffer.from_bytes(raw.tobytes())
        (result,) = _run_coroutine(codec.decode([(buffer, spec)]))
        values = result.as_numpy_array()
        return _bytes_or_objects(values, form)

    if to_array:
        return DecodeStep(name, run, BufferSpec.array(after.dtype.to_native_dtype(), after.shape), uses_library=True)
    given_form = form if isinstance(codec, ArrayBytesCodec) else form.as_bytes()
    return DecodeStep(name, run, _unknown_output(given_form), uses_library=True)


def _configuration_error(name: str, error: Exception) -> CodecError:
    return CodecError(f"the configuration of codec {name!r} is invalid: {error!r}", codec=name)


def _unknown_output(form: BufferSpec) -> BufferSpec:
    """Return the spec of the output of an unknown codec.

    Some (base64, JSON) write more than they get.
    """
    return form.compressor_output(16, 1 << 16) if form.exact else BufferSpec(MAX_UNDECLARED_BYTES, False)


def _bytes_or_objects(values: Any, form: BufferSpec) -> Data:
    if isinstance(values, np.ndarray):
        if values.dtype.hasobject:
            if form.dtype is None or not form.dtype.hasobject:
                raise CodecError(f"the data decodes to Python objects, but the chunk has the type {form.dtype}")
            return values
        # Results of external codecs may be in Fortran order; the chain needs C order.
        return as_octets(np.ascontiguousarray(values).reshape(-1))
    return as_octets(values)


def _run_coroutine(work: Coroutine[Any, Any, Any]) -> Any:
    """Run zarr's coroutine to its end, also where this thread already runs an event loop."""
    import asyncio  # not at the top: slow to import, and few codecs are coroutines

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    result: list[Any] = []
    failure: list[BaseException] = []

    def target() -> None:
        try:
            result.append(asyncio.run(work))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=target, name="insitu-codec")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
