"""What is in a GRIB file, by the index beside it?

The index says where the messages are, so the headers of all come in one batch. What a line of text turned out to mean is remembered: in the next file of the archive, whose index has the
same lines with other dates and steps, only one message of each grid is looked at, to see that it is what the line meant before.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from insitu.errors import FormatError, InsituError, NotFoundError
from insitu.formats.choosing import below, picked
from insitu.formats.grib.messages import at_places
from insitu.formats.grib.scan import Broken, Tree, tree_of
from insitu.formats.grib.sections import Field, Message
from insitu.formats.grib.side_file import Line, read_side_file, target_names
from insitu.formats.grib.told import Told, describe
from insitu.formats.grib.variables import Fields
from insitu.formats.hdf5.neighbours import Neighbours
from insitu.formats.hdf5.walk import run
from insitu.formats.hdf5.window import Window
from insitu.formats.problems import Problems
from insitu.model import VirtualGroup

__all__ = ["scan_by_index"]

MEMORY = 1 << 16


class Meant(NamedTuple):
    """What a line turned out to be; None where it was not one thing."""

    field: Field
    told: Told


_memory: dict[str, Meant | None] = {}


def scan_by_index(
    window: Window,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: str = "raise",
) -> VirtualGroup:
    """Scan the GRIB file of an index.

    Parameters
    ----------
    window
        The index.
    group, variables, errors
        As for a GRIB file.
    """
    problems = Problems(errors)
    names = target_names(window.url)
    with Neighbours(window) as neighbours:
        file = next((found for name in names if (found := neighbours.open_beside(window, name)) is not None), None)
        if file is None:
            raise NotFoundError(
                f"the GRIB file of the index is not there: {' or '.join(names) or 'it has no name'}",
                url=window.url,
            )
        lines = read_side_file(window, file.size)
        broken = Broken(problems, file.url)
        fields = _remembered(lines, file)
        if fields is None:
            fields = _looked_at(lines, file, broken)
        tree = tree_of(Tree(fields, len({line.offset for line in lines})), file.source.describe(), problems)
    return picked(below(tree, group, url=window.url), variables, url=window.url)


def _looked_at(lines: list[Line], file: Window, broken: Broken) -> Fields:
    """All headers, and what they say about the lines."""
    places = list(dict.fromkeys((line.offset, line.length) for line in lines))
    messages: list[Message] = run(at_places(places, file.size, broken), file)
    table = Fields([], [])
    text = {(line.offset, line.number): line for line in lines}
    here: dict[str, Meant | None] = {}
    for message in messages:
        for field in message.fields:
            try:
                told = describe(field)
            except InsituError as problem:
                broken(field.offset, problem)
                continue
            table.fields.append(field)
            table.told.append(told)
            line = text.get((field.offset, field.number))
            if line is not None:
                plain = line.time == told.time and line.step == told.step
                same = here.get(line.text)
                fits = plain and (line.text not in here or (same is not None and _alike(same.told, told)))
                here[line.text] = Meant(field, told) if fits else None
    if len(_memory) > MEMORY:
        _memory.clear()
    _memory.update(here)
    return table


def _alike(one: Told, other: Told) -> bool:
    return one.keys is other.keys and (one.number, one.level) == (other.number, other.level)


def _remembered(lines: list[Line], file: Window) -> Fields | None:
    """The fields by what the lines meant before; None if any of them is new, or means something else here."""
    known = [_memory.get(line.text) for line in lines]
    table = Fields([], [])
    samples: dict[bytes, tuple[Line, Meant]] = {}
    for line, meant in zip(lines, known, strict=True):
        if meant is None or line.time is None or line.step is None:
            return None
        table.fields.append(meant.field._replace(offset=line.offset, length=line.length, number=line.number))
        table.told.append(meant.told._replace(time=line.time, step=line.step))
        samples.setdefault(meant.told.keys["geometry"], (line, meant))
    places = [(line.offset, line.length) for line, _ in samples.values()]
    try:
        messages = run(at_places(places, file.size, _refuse), file)
        for message, (line, meant) in zip(messages, samples.values(), strict=True):
            told = describe(message.fields[line.number])
            plain = (told.time, told.step, told.number, told.level)
            if told.keys is not meant.told.keys or plain != (line.time, line.step, meant.told.number, meant.told.level):
                return None
    except (FormatError, IndexError):
        return None
    return table


def _refuse(offset: int, problem: InsituError) -> None:
    raise problem
