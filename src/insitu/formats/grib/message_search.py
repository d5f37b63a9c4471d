"""Find the messages of a GRIB file.

Each message gives its length, so the search hops from one to the next and reads some hundred bytes
of each. After messages of one length in a row, the next headers are requested together. A large
remote file is searched from several offsets at once; where one search arrives at the start of the
next, they have found the same chain. Bytes between messages (bulletin headings, padding) are
skipped, as all readers of GRIB do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from insitu.errors import FormatError, InsituError
from insitu.formats.grib.sections import MAGIC, GribMessage, read_message, read_similar_message
from insitu.formats.parsing.scheduler import ExactRanges, Parallel, Walk, to_format_error

__all__ = ["PADDING", "fills_file", "find_messages", "first_message", "message_length", "read_messages_at"]

END = b"7777"
HOP = 384
"""Bytes of a message that are read first; more if previous headers were larger."""
MOST_AHEAD = 256
"""Most headers that are requested together after messages of one length: 1,200 such messages take 6 requests instead of
1,059.
"""
WALKS = 16
"""Searches of a remote file from several offsets at once, for messages whose lengths differ: 1,200 of them take 79
requests instead of 1,041.
"""
LEAST_MESSAGES = 4
"""Messages per search that make it worth the bytes read to find its first one."""
SEARCH = 64 << 10
"""Bytes in which the next message is looked for first; twice as many each time that there is none,"""
LONGEST_SEARCH = 4 << 20
"""up to so many: a gap of any size takes few requests, and a small one few bytes."""
MESSAGES_LIMIT = 1 << 24
"""Most messages of a file: more are those of a damaged one, whose headers would fill the memory."""
PADDING = 4096
"""Bytes that may lie between messages, by an index."""
OnBrokenMessage = Callable[[int, InsituError], None]


def first_message(head: bytes) -> int:
    """Return where the first message begins; -1: nowhere in these bytes."""
    at = head.find(MAGIC)
    while at >= 0:
        if head[at + 7 : at + 8] in (b"\1", b"\2"):
            return at
        at = head.find(MAGIC, at + 1)
    return -1


def message_length(head: bytes) -> int:
    """Return the length of a message by its first sixteen bytes, as an estimate."""
    return int.from_bytes(head[8:16], "big") if head[7:8] == b"\2" else int.from_bytes(head[4:7], "big")


def find_messages(head: bytes, size: int, broken: OnBrokenMessage, *, remote: bool = False) -> Walk[list[GribMessage]]:
    """Find all messages of a file.

    Parameters
    ----------
    head
        Its first bytes.
    size
        Bytes in it.
    broken
        Called with each message that cannot be read; it raises, or the search continues behind it.
    remote
        Whether each read costs a round trip.
    """
    first = max(first_message(head), 0)
    length = message_length(head[first : first + 16])
    walks = min(WALKS, (size - first) // max(length, 1) // LEAST_MESSAGES) if remote else 1
    if walks > 1:
        found = yield from _search_in_parallel(first, length, walks, size)
        if found is not None:
            return found
    found, _ = yield from _follow_messages(first, size, size, broken)
    return found


def _search_in_parallel(first: int, length: int, walks: int, size: int) -> Walk[list[GribMessage] | None]:
    """Search from several offsets at once; return None if anything is unusual.

    Then one search goes through in order.
    """
    places = [first + number * ((size - first) // walks) for number in range(1, walks)]
    room = min(max(length + length // 2, SEARCH), LONGEST_SEARCH)
    blocks = yield ExactRanges([(place, min(room, size - place)) for place in places])
    starts = {first}
    for place, block in zip(places, blocks, strict=True):
        # A false one is found out: the walk before does not arrive there.
        if (at := first_message(block)) > 0:
            starts.add(place + at)
    ordered = sorted(starts)
    unusual: list[int] = []
    chains = yield Parallel(
        [
            _follow_messages(start, stop, size, lambda offset, problem: unusual.append(offset))
            for start, stop in zip(ordered, [*ordered[1:], size], strict=True)
        ]
    )
    if unusual or any(end != stop for (_, end), stop in zip(chains[:-1], ordered[1:], strict=True)):
        return None
    return [message for messages, _ in chains for message in messages]


def _follow_messages(first: int, stop: int, size: int, broken: OnBrokenMessage) -> Walk[tuple[list[GribMessage], int]]:
    """Return the messages that begin in a part of the file, and where the chain ends."""
    found: list[GribMessage] = []
    at, hop, ahead, last = first, HOP, 1, 0
    while at < stop:
        # With the four bytes in front, which end the message before.
        count = max(min(ahead, (stop - at) // last if last else 1), 1)
        places = [at + number * last for number in range(count)]
        blocks = yield ExactRanges(
            [(place - 4 * (place >= 4), min(hop + 4, size - place + 4 * (place >= 4))) for place in places]
        )
        for place, block in zip(places, blocks, strict=True):
            if place != at:
                ahead = 1
                break
            lead = 4 * (place >= 4)
            if found and found[-1].offset + found[-1].length == at and block[:lead] != END:
                broken(found[-1].offset, _no_end_error(found[-1]))
                at = found.pop().offset + 4
                at = yield from _search(at, size)
                ahead, last = 1, 0
                break
            data = block[lead:]
            if not _is_message_start(data):
                skipped = first_message(data)
                if 0 <= skipped <= len(data) - 16:  # ECMWF fills up to a multiple of 120 bytes, others to whole words
                    at += skipped
                    if at >= stop:
                        break
                    data = data[skipped:]
                else:
                    at = yield from _search(at, size)
                    ahead, last = 1, 0
                    break
            try:
                message = read_similar_message(found[-1], at, data, size) if found else None
                if message is None:
                    message = yield from read_message(at, data, size)
            except InsituError as problem:
                broken(at, to_format_error(problem, offset=at, structure="GRIB message"))
                at = yield from _search(at + 4, size)
                ahead, last = 1, 0
                break
            found.append(message)
            if len(found) > MESSAGES_LIMIT:
                raise FormatError(
                    f"the file has more than {MESSAGES_LIMIT} messages", offset=at, structure="GRIB message"
                )
            hop = max(hop, message.header + 16)
            stride = at - found[-2].offset if len(found) > 1 else 0
            ahead = min(2 * ahead, MOST_AHEAD) if stride and stride == last else 1
            last = stride
            at += message.length
    if found and found[-1].offset + found[-1].length == size:
        (tail,) = yield ExactRanges([(size - 4, 4)])
        if tail != END:
            broken(found[-1].offset, _no_end_error(found.pop()))
    return found, at


def fills_file(places: Sequence[tuple[int, int]], size: int, padding: int = PADDING) -> bool:
    """Return whether messages at these offsets, of these lengths, follow each other and fill a file, but for less than
    some bytes of padding.
    """
    begins, ends = [offset for offset, _ in places], [offset + length for offset, length in places]
    gaps = [begin - end for begin, end in zip([*begins, size], [0, *ends], strict=True)]
    return all(0 <= gap < padding for gap in gaps)


def read_messages_at(
    places: Sequence[tuple[int, int]], size: int, broken: OnBrokenMessage, hop: int = HOP
) -> Walk[list[GribMessage]]:
    """Read the headers of messages at offsets and lengths that an index gives, in one batch."""
    ranges = [(offset, min(hop, length, max(size - offset, 0))) for offset, length in places]
    blocks = yield ExactRanges(ranges)
    found: list[GribMessage] = []
    walks = [
        _read_indexed_message(offset, length, block, size)
        for (offset, length), block in zip(places, blocks, strict=True)
    ]
    for (offset, _), result in zip(places, (yield Parallel(walks, keep=True)), strict=True):
        if isinstance(result, InsituError):
            broken(offset, result)
        else:
            found.append(result)
    return found


def _read_indexed_message(offset: int, length: int, block: bytes, size: int) -> Walk[GribMessage]:
    if not _is_message_start(block):
        raise FormatError(
            "no GRIB message begins where the index says",
            offset=offset,
            structure="GRIB section 0",
            hint="The index belongs to another file. Scan the GRIB file itself",
        )
    message: GribMessage = yield from read_message(offset, block, size)
    if not length - PADDING < message.length <= length:  # an index of NCEP says where the next one begins
        raise FormatError(
            f"the message has {message.length} bytes, but {length} by the index",
            offset=offset,
            structure="GRIB section 0",
        )
    return message


def _is_message_start(data: bytes) -> bool:
    return len(data) >= 16 and data[:4] == MAGIC and data[7] <= 3


def _no_end_error(message: GribMessage) -> InsituError:
    return FormatError(
        "the message does not end with 7777",
        offset=message.offset,
        length=message.length,
        structure="GRIB section 8",
        hint='errors="warn" leaves the message out',
    )


def _search(at: int, size: int) -> Walk[int]:
    """Return where the next message may begin; the end of the file if there is none."""
    step = SEARCH
    while at + 16 <= size:
        (block,) = yield ExactRanges([(at, min(step, size - at))])
        place = first_message(block + b"\0" if len(block) < 8 else block)
        if place >= 0:
            return at + place
        at += max(len(block) - 7, 1)
        step = min(2 * step, LONGEST_SEARCH)
    return size
