"""Scan a GRIB file by the index beside it (`.idx` of NCEP, `.index` of ECMWF), reading few
messages.

The lines of an index say which field lies where. What they do not say (centre, grid, how an
ensemble is numbered) is the same in all messages of a kind, so one message of each kind is read.
From its header and the words of a line the header of a field is composed, and described like any
other. Also read are the messages of lines that are not understood or occur twice, of names that
stand for several parameters, of unexplained lengths, and those in the first bytes of the file. If a
line contradicts the header of its message, all headers are read. The other messages are checked
when their values are read: another grid, parameter, lead time, level or member than expected is an
error.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from insitu.errors import InsituWarning, NotFoundError
from insitu.formats.grib.codecs.header_mark import LEVEL, RUN, START, common_mark, make_mark
from insitu.formats.grib.composed_header import INSTANT_OF, compose_headers
from insitu.formats.grib.header_keys import UNDEFINED, FieldDescription, describe
from insitu.formats.grib.index_file import IndexLine, data_file_names, is_grib_index, read_index
from insitu.formats.grib.index_outline import check_last_message, outline_grib_index
from insitu.formats.grib.inventory import ParsedLine, parse_inventory_line
from insitu.formats.grib.mars import field_kind, model_key, parameter_in_header, parse_mars_words
from insitu.formats.grib.message_search import fills_file
from insitu.formats.grib.sampled_messages import SampledMessages
from insitu.formats.grib.scan import BrokenMessages, FoundFields, build_tree
from insitu.formats.grib.sections import GribField
from insitu.formats.grib.variables import FieldTable, Unverified, has_same_header
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.parsing.sibling_files import SiblingFiles
from insitu.formats.registry import Format
from insitu.formats.scan_request import ScanRequest, with_keywords
from insitu.formats.unreadable import Problems
from insitu.model import VirtualGroup

__all__ = ["GRIB_INDEX", "scan_grib_index"]

ROUNDS = 8
"""Most rounds of reading messages of unexplained length."""
SMALLEST = 64
"""Bytes of a message, at least: a gap as large may be one."""
Model = tuple[str, int]


class Guess(NamedTuple):
    """The header of a line whose message was not read."""

    field: GribField
    description: FieldDescription
    expected: Unverified


def scan_grib_index(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Return the datasets of the GRIB file that an index belongs to."""
    problems = Problems(request.errors)
    names = data_file_names(window.url)
    with SiblingFiles(window) as siblings:
        file = next((found for name in names if (found := siblings.open_sibling(window, name)) is not None), None)
        if file is None:
            raise NotFoundError(
                "the GRIB file of the index is missing: "
                f"{' or '.join(names) or 'the index has no name to derive it from'}",
                url=window.url,
            )
        lines = read_index(window, file.size)
        if lines:
            last = max(lines, key=lambda line: line.offset)
            if file.local:  # far away it would be a request of its own
                check_last_message(file.source.read, last.offset, last.length, file.size, window.url)
            if not fills_file(sorted({(line.offset, line.length) for line in lines}), file.size, SMALLEST):
                # It may be a selection that somebody made, so it is read as it is.
                reason = f"{window.url} lists only some messages of {file.url}: the others are left out"
                problems.note("messages", reason)
                if request.errors != "keep":
                    warnings.warn(reason, InsituWarning, stacklevel=2)
        broken = BrokenMessages(problems, file.url)
        samples = SampledMessages(file, {line.offset: line.length for line in lines}, broken)
        table = _table(lines, samples)
        tree = build_tree(
            FoundFields(table, len(samples.lengths), broken.unsupported), file.source.describe(), problems
        )
    return request.select(tree)


def _table(lines: list[IndexLine], samples: SampledMessages) -> FieldTable:
    """Return all fields: those whose messages were read, and those that the lines describe."""
    samples.read(line.offset for line in lines[:1])
    if not samples.messages:
        return _read_all_headers(lines, samples)
    first = next(iter(samples.messages.values())).fields[0]
    centre = int.from_bytes(first.identification[5:7], "big") if first.edition == 2 else -1
    parsed: dict[IndexLine, ParsedLine | None] = {}
    models: dict[Model, IndexLine] = {}
    for line in lines:
        if line.words is not None and line.time is not None:
            parsed[line] = found = parse_inventory_line(*line.words, centre)
            if found is not None:
                models.setdefault(found.model, line)
        elif line.mars_words is not None and line.time is not None:
            models.setdefault(model_key(dict(line.mars_words)), line)
    texts = Counter((line.time, line.words or line.mars_words) for line in lines)
    samples.read(
        line.offset
        for line in lines
        if texts[line.time, line.words or line.mars_words] > 1
        or (line.words is not None and parsed[line] is None)
        or line.time is None
    )
    samples.read([*(line.offset for line in models.values()), *samples.in_first_bytes()])
    headers = {model: _field(samples, line) for model, line in models.items()}
    parsed |= _parse_words(lines, headers, samples)
    guesses = _guess_headers(lines, parsed, headers, samples)
    if guesses is None:
        return _read_all_headers(lines, samples)
    return _merge_fields(lines, guesses, samples)


def _parse_words(
    lines: list[IndexLine], headers: dict[Model, GribField | None], samples: SampledMessages
) -> dict[IndexLine, ParsedLine | None]:
    """Parse the MARS words of lines; of each kind that they leave open, one message is read."""
    found: dict[IndexLine, ParsedLine | None] = {}
    examples: dict[tuple[str, ...], IndexLine] = {}
    objects = [(line, dict(line.mars_words)) for line in lines if line.mars_words is not None and line.time is not None]
    for line, words in objects:
        model = headers[model_key(words)]
        found[line] = parse_mars_words(words, model) if model is not None else None
        if found[line] is None:
            examples.setdefault(field_kind(words), line)
    samples.read(line.offset for line in examples.values())
    for line, words in objects:
        model, example = headers[model_key(words)], examples.get(field_kind(words))
        seen = _field(samples, example) if example is not None else None
        if found[line] is None and model is not None and seen is not None:
            parameter = parameter_in_header(seen)
            found[line] = parse_mars_words(words, model, parameter) if parameter is not None else None
    return found


def _guess_headers(
    lines: list[IndexLine],
    parsed: dict[IndexLine, ParsedLine | None],
    headers: dict[Model, GribField | None],
    samples: SampledMessages,
) -> dict[IndexLine, Guess] | None:
    """Return the header of each line, reading messages where needed.

    None if a line contradicts its message.
    """
    guesses: dict[IndexLine, Guess] = {}
    flags = _flags_of_lines(lines)
    for _ in range(2):
        _narrow_parameters(lines, parsed, samples)
        unclear: dict[str, int] = {}
        for line in lines:
            words = parsed.get(line)
            if words is None or line in guesses:
                continue
            guess = _guess_header(words, line, headers, flags[line])
            if guess is not None:
                guesses[line] = guess
            elif line.words is not None:
                unclear.setdefault(line.words[0], line.offset)
        if not unclear:
            break
        samples.read(unclear.values())
    samples.read(line.offset for line in lines if line not in guesses)
    return guesses if _is_consistent(guesses, samples) else None


def _is_consistent(guesses: dict[IndexLine, Guess], samples: SampledMessages) -> bool:
    """Return whether all lines whose message was read agree with its header."""
    for line, guess in guesses.items():
        if line.offset in samples.messages:
            description = samples.descriptions.get((line.offset, line.number))
            if description is None or not has_same_header(description, guess.description):
                return False
    return True


def _narrow_parameters(
    lines: list[IndexLine], parsed: dict[IndexLine, ParsedLine | None], samples: SampledMessages
) -> None:
    """Reduce names that stand for several parameters to the one that was found in a message."""
    seen: dict[str, tuple[int, int, int]] = {}
    for line in lines:
        field = _field(samples, line)
        if line.words is not None and field is not None and field.edition == 2:
            seen[line.words[0]] = (field.discipline, field.product[9], field.product[10])
    for line, words in parsed.items():
        if words is not None and line.words is not None and seen.get(line.words[0]) in words.parameters:
            parsed[line] = words._replace(parameters=(seen[line.words[0]],))


def _guess_header(
    parsed: ParsedLine, line: IndexLine, headers: dict[Model, GribField | None], flags: int
) -> Guess | None:
    """Return the header of a line; None if several differing ones are possible."""
    model = headers.get(parsed.model)
    if model is None or line.time is None or model.edition != 2:
        return None
    template = int.from_bytes(model.product[7:9], "big")
    if INSTANT_OF.get(template) is None or (parsed.member is not None and INSTANT_OF[template] != 1):
        return None
    if len(model.product) < 34 or len(model.identification) < 21:
        return None
    model = model._replace(offset=line.offset, length=line.length, number=line.number)
    fields = list(compose_headers(parsed, line.time, model))
    descriptions = [describe(field) for field in fields]
    if not all(has_same_header(descriptions[0], other) for other in descriptions[1:]):
        return None
    if line.mars_words is not None and descriptions[0].keys["paramId"] in (0, UNDEFINED):
        return None  # MARS has a name for everything
    precise = line.words is not None and len(parsed.parameters) == 1
    mark = common_mark(make_mark(field.identification, field.product, flags) for field in fields)
    return Guess(fields[0], descriptions[0], Unverified(precise, mark))


def _flags_of_lines(lines: Sequence[IndexLine]) -> dict[IndexLine, int]:
    """Return what each line says of its message beside lead time and member, as flags of a mark.

    The run of one run's index is looked at when it is opened, and makes marks that differ by file.
    MARS has no word for the start of an interval, and none for the levels of `sfc`, of which what
    ecCodes writes today need not be what the message has.
    """
    runs = {line.time for line in lines}
    run = RUN if len(runs) > 1 else 0
    found: dict[IndexLine, int] = {}
    for line in lines:
        if line.mars_words is not None:
            found[line] = run | (LEVEL if "levelist" in dict(line.mars_words) else 0)
        else:
            found[line] = run | START | LEVEL
    return found


def _merge_fields(lines: list[IndexLine], guesses: dict[IndexLine, Guess], samples: SampledMessages) -> FieldTable:
    """Return the table of all fields, from messages and lines."""
    products = {line.offset: len(guess.field.product) for line, guess in guesses.items() if line.number == 0}
    for _ in range(ROUNDS):
        if not (unexplained := samples.find_unexplained(products)):
            break
        samples.read(unexplained)
    several = len(samples.grids()) > 1
    table = FieldTable([], [], {})
    placed: list[Guess] = []
    doubtful: list[int] = []
    for line, guess in guesses.items():
        if line.offset in samples.tried:
            continue
        if several:
            other = samples.grid_of(line.offset, products.get(line.offset, 0))
            if other is None:
                doubtful.append(line.offset)
                continue
            field = guess.field._replace(grid=other.grid)
            guess = Guess(field, describe(field), guess.expected)
        placed.append(guess)
    samples.read(doubtful)
    if not _is_consistent(guesses, samples):
        return _read_all_headers(lines, samples)
    order = {offset: place for place, offset in enumerate(samples.lengths)}
    found = [*_sampled_fields(lines, samples), *placed]
    for guess in sorted(found, key=lambda one: (order[one.field.offset], one.field.number)):
        table.unverified[len(table.fields)] = guess.expected
        table.fields.append(guess.field)
        table.descriptions.append(guess.description)
    return table


def _read_all_headers(lines: Sequence[IndexLine], samples: SampledMessages) -> FieldTable:
    """Return all fields, by reading all headers."""
    samples.read(samples.lengths)
    order = {offset: place for place, offset in enumerate(samples.lengths)}
    found = sorted(_sampled_fields(lines, samples), key=lambda one: (order[one.field.offset], one.field.number))
    return FieldTable(
        [one.field for one in found],
        [one.description for one in found],
        {number: one.expected for number, one in enumerate(found) if one.field.edition == 2},
    )


def _sampled_fields(lines: Sequence[IndexLine], samples: SampledMessages) -> list[Guess]:
    """Return all fields of the messages that were read.

    They are checked, too, when their values are read: files like this one are not, and are described
    by it.
    """
    flags = {(line.offset, line.number): own for line, own in _flags_of_lines(lines).items()}
    found = []
    for message in samples.messages.values():
        for field in message.fields:
            place = field.offset, field.number
            if place in samples.descriptions:
                is_known = place in flags and field.edition == 2
                mark = make_mark(field.identification, field.product, flags[place]) if is_known else 0
                found.append(Guess(field, samples.descriptions[place], Unverified(True, mark)))
    return found


def _field(samples: SampledMessages, line: IndexLine) -> GribField | None:
    message = samples.messages.get(line.offset)
    return message.fields[line.number] if message is not None and line.number < len(message.fields) else None


GRIB_INDEX = Format(is_grib_index, with_keywords(scan_grib_index), outline_grib_index)
