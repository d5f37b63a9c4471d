"""Who decodes a codec that insitu does not know itself?

The class that somebody registered for it: with numcodecs (Zarr v2, and `numcodecs.*` names of v3) or with zarr (v3). Pickles are never loaded,
whoever registers them: data must not run code.
"""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Coroutine
from typing import Any

import numpy as np

from insitu.codecs.buffer_spec import LARGEST, Configuration, Data, Form, Octets, Step, octets
from insitu.codecs.libraries import find
from insitu.errors import CodecError, UnknownCodecError

__all__ = ["registered"]

REFUSED = frozenset({"pickle"})


FILL = "$fill"
"""In a configuration: one element, base64, of what a never-written inner chunk of a shard holds. Not the codec's own, so it is taken out."""


def registered(name: str, configuration: Configuration, form: Form) -> Step | None:
    """Return a step that decodes through the registered class, or None if there is no such class.

    Parameters
    ----------
    name
        As the metadata spells it, without the prefix `numcodecs.`.
    configuration
        Its parameters.
    form
        What the codec was given.

    Raises
    ------
    UnknownCodecError
        For pickles.
    """
    if name in REFUSED:
        raise UnknownCodecError(
            f"codec {name!r} is refused: reading it would run whatever code the data holds",
            codec=name,
            hint="Have the data written with another codec, e.g. vlen-utf8 or json2",
        )
    return _numcodecs(name, configuration, form) or _zarr(name, configuration, form)


def _numcodecs(name: str, configuration: Configuration, form: Form) -> Step | None:
    get = find("numcodecs.registry", "get_codec")
    if get is None:
        return None
    if name.startswith("imagecodecs_") and (register := find("imagecodecs.numcodecs", "register_codecs")):
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

    def run(data: Data, out: Octets | None) -> Data:
        raw = octets(data)
        # Their classes take what came from a file: read-only bytes, never a buffer that is about to be used again.
        return _bytes_or_objects(codec.decode(raw.tobytes()), form)

    return Step(name, run, _loose(form))


def _zarr(name: str, configuration: Configuration, form: Form) -> Step | None:
    get = find("zarr.registry", "get_codec_class")
    if get is None or form.dtype is None or form.shape is None:
        return None
    try:
        found = get(name)
    except (KeyError, ValueError):
        # Some versions of zarr raise a KeyError, others an error of their own that is a ValueError.
        return None
    settings = {key: value for key, value in configuration.items() if key != FILL}
    codec = found.from_dict({"name": name, "configuration": settings})
    from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec
    from zarr.core.array_spec import ArrayConfig, ArraySpec
    from zarr.core.buffer import default_buffer_prototype
    from zarr.dtype import parse_dtype

    prototype = default_buffer_prototype()
    kind = parse_dtype(form.dtype, zarr_format=3)
    fill = kind.default_scalar()
    if FILL in configuration:
        element = np.frombuffer(base64.b64decode(configuration[FILL]), form.dtype, count=1)[0]
        fill = kind.cast_scalar(element)
    given = ArraySpec(form.shape, kind, fill, ArrayConfig("C", write_empty_chunks=True), prototype)
    codec = codec.evolve_from_array_spec(given)
    after = codec.resolve_metadata(given)
    to_array = isinstance(codec, ArrayArrayCodec)

    def run(data: Data, out: Octets | None) -> Data:
        raw = octets(data)
        held: Any
        if to_array:
            held = prototype.nd_buffer.from_numpy_array(raw.view(after.dtype.to_native_dtype()).reshape(after.shape))
        else:
            held = prototype.buffer.from_bytes(raw.tobytes())
        (result,) = _wait(codec.decode([(held, given)]))
        values = result.as_numpy_array()
        return _bytes_or_objects(values, form)

    if to_array:
        return Step(name, run, Form.array(after.dtype.to_native_dtype(), after.shape))
    return Step(name, run, _loose(form) if isinstance(codec, ArrayBytesCodec) else _loose(form.as_bytes()))


def _loose(form: Form) -> Form:
    """Return what a codec of unknown habits may have made of it; some (base64, JSON) write more than they get."""
    return form.compressed(16, 1 << 16) if form.exact else Form(LARGEST, False)


def _bytes_or_objects(values: Any, form: Form) -> Data:
    if isinstance(values, np.ndarray):
        if values.dtype.hasobject:
            if form.dtype is None or not form.dtype.hasobject:
                raise CodecError(f"the data holds objects, the chunk {form.dtype}")
            return values
        # Fortran order survives in their results; the chain speaks C order of what was encoded.
        return octets(np.ascontiguousarray(values).reshape(-1))
    return octets(values)


def _wait(work: Coroutine[Any, Any, Any]) -> Any:
    """Run zarr's coroutine to its end, also where this thread already runs an event loop."""
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
