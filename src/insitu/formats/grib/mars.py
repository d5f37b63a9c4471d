"""Parse MARS words of ECMWF's index (`.index`) with the help of ecCodes.

`param` and `levtype` are translated by ecCodes, which knows what a header with that name holds. It
is asked twice, from headers of different levels: what comes out the same is meant by the name; what
differs is left open, and the header of the message has to be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from insitu.formats.grib.abbreviations import Parameter
from insitu.formats.grib.codecs.eccodes_library import eccodes, eccodes_lock
from insitu.formats.grib.composed_header import INSTANT_OF
from insitu.formats.grib.inventory import HOUR, ForecastSpan, ParsedLine
from insitu.formats.grib.sections import GribField
from insitu.formats.grib.short_message import short_message
from insitu.formats.grib.surfaces import BARE, MISSING, Surface
from insitu.lru import LruCache

__all__ = ["ParameterHeader", "field_kind", "model_key", "parameter_in_header", "parse_mars_words"]

ACCUMULATED = 1
MEMORY = 1 << 12
_OWN = {"param", "levelist", "step", "number", "levtype"}
"""Words that distinguish fields of one kind."""
_STATISTIC = {8: 46, 11: 49, 12: 48}
"""Offset of the kind of statistic in templates of intervals."""
_LEVELS = {"pl": (100, 100), "ml": (105, 1)}
"""Code of the surface, and what a level is multiplied by."""


class ParameterHeader(NamedTuple):
    """The octets of a header that a parameter sets."""

    parameter: Parameter
    surfaces: bytes
    statistic: int | None
    tables: bytes


_memory: LruCache[tuple[Any, ...], ParameterHeader | None] = LruCache(MEMORY)


def model_key(mars_words: Mapping[str, str]) -> tuple[str, int]:
    """Return a key of fields that share the rest of the header."""
    levels = mars_words.get("levtype")
    words = sorted((key, value) for key, value in mars_words.items() if key not in _OWN)
    return repr((words, "number" in mars_words)), 105 if levels == "ml" else 0


def field_kind(mars_words: Mapping[str, str]) -> tuple[str, ...]:
    """Return a key of fields that have the same header but for time and member."""
    return (*(mars_words.get(word, "") for word in ("param", "levtype", "levelist")), repr(model_key(mars_words)))


def parameter_in_header(field: GribField) -> ParameterHeader | None:
    """Return the parameter of a header that was read; None if its template is not supported."""
    own = int.from_bytes(field.product[7:9], "big")
    if field.edition != 2 or own not in INSTANT_OF or len(field.product) < 34:
        return None
    return _parameter_header(field.discipline, field.identification, field.product)


def parse_mars_words(
    mars_words: Mapping[str, str], model: GribField, parameter: ParameterHeader | None = None
) -> ParsedLine | None:
    """Return the meaning of the words; None if they leave something open.

    Parameters
    ----------
    mars_words
        The object.
    model
        A field that shares the rest of the header.
    parameter
        The parameter of another field of its kind, if one was read.
    """
    number = mars_words.get("number", "")
    if model.edition != 2 or (number and not number.isdecimal()) or int(number or 0) > 254:
        return None
    if parameter is None:
        parameter = _by_name(mars_words, model)
    spans = _spans(mars_words.get("step", ""), parameter) if parameter is not None else []
    if parameter is None or not spans:
        return None
    upper, lower = parameter.surfaces[:6], parameter.surfaces[6:]
    layer = Surface(upper[0], upper[1:]), Surface(lower[0], lower[1:])
    member = int(number) if number else None
    sign = model.product[34] if len(model.product) > 34 else 0
    return ParsedLine((parameter.parameter,), [layer], spans, member, sign, model_key(mars_words), parameter.tables)


def _by_name(mars_words: Mapping[str, str], model: GribField) -> ParameterHeader | None:
    levels, level = mars_words.get("levtype", ""), mars_words.get("levelist", "")
    if levels in _LEVELS:
        if not level.isdecimal() or not 0 < int(level) < 1 << 20:
            return None
    elif levels != "sfc" or level:
        return None
    parameter = _ask_eccodes(mars_words.get("param", ""), levels, model)
    if parameter is None or levels == "sfc":
        return parameter
    code, factor = _LEVELS[levels]
    upper = bytes((code, 0)) + (int(level) * factor).to_bytes(4, "big")
    return parameter._replace(surfaces=upper + parameter.surfaces[6:])


def _spans(step: str, parameter: ParameterHeader) -> list[ForecastSpan]:
    if not step.isdecimal() or len(step) > 5 or parameter.statistic not in (None, ACCUMULATED):
        return []
    end = int(step)
    return [ForecastSpan(HOUR, end if parameter.statistic is None else 0, end, end * 3600, parameter.statistic)]


def _ask_eccodes(param: str, levels: str, model: GribField) -> ParameterHeader | None:
    key = (param, levels, model.identification[5:12], model.product[7:9])

    def ask() -> ParameterHeader | None:
        bases = ["surface", "isobaricInhPa"] if levels == "sfc" else ["hybrid" if levels == "ml" else "isobaricInhPa"]
        found = [_header_by_name(param, base, model) for base in bases]
        return found[0] if len(set(found)) == 1 else None

    return _memory.get_or_load(key, ask)


def _header_by_name(param: str, base: str, model: GribField) -> ParameterHeader | None:
    """Return what ecCodes writes for a name into a header of some level."""
    library = eccodes()
    template = INSTANT_OF.get(int.from_bytes(model.product[7:9], "big"))
    if template is None or not param:
        return None
    with eccodes_lock():
        handle = library.codes_new_from_message(short_message(model))
        try:
            library.codes_set(handle, "productDefinitionTemplateNumber", template)
            library.codes_set(handle, "typeOfLevel", base)
            library.codes_set(handle, "level", 500 if base == "isobaricInhPa" else 0)
            name = "paramId" if param.isdecimal() else "shortName"
            library.codes_set(handle, name, int(param) if param.isdecimal() else param)
            if str(library.codes_get(handle, name)) != param:
                return None
            message = library.codes_get_message(handle)
        except library.CodesInternalError:
            return None
        finally:
            library.codes_release(handle)
    at, identification = 16, bytes(message[16:37])
    while message[at + 4] != 4:
        at += int.from_bytes(message[at : at + 4], "big")
    product = message[at : at + int.from_bytes(message[at : at + 4], "big")]
    own = int.from_bytes(product[7:9], "big")
    if own not in INSTANT_OF or INSTANT_OF[own] != template:
        return None
    return _parameter_header(message[6], identification, bytes(product))


def _parameter_header(discipline: int, identification: bytes, product: bytes) -> ParameterHeader:
    own = int.from_bytes(product[7:9], "big")
    statistic = product[_STATISTIC[own]] if own in _STATISTIC else None
    surfaces = b"".join(
        product[at : at + 1] + (MISSING if product[at] in BARE else product[at + 1 : at + 6]) for at in (22, 28)
    )
    return ParameterHeader((discipline, product[9], product[10]), surfaces, statistic, identification[9:11])
