"""`api/archive`: the groups and variables of an archive, how they are stored, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from insitu.cancellation import check_deadline
from insitu.codecs.undecodable import find_undecodable
from insitu.errors import InsituError
from insitu.model import Encoding, VirtualArray, count_cells
from insitu.model.description import detail_notes
from insitu.model.encoding_texts import codec_chain_text
from insitu.reading import ReadContext
from insitu.scanning.member import Member
from insitu.server.error_responses import public_message
from insitu.server.explorer.api_answer import ApiAnswer, json_answer
from insitu.server.explorer.archive_route import ApiTask, ArchiveRequest
from insitu.server.explorer.find_map import find_map, map_summary
from insitu.server.explorer.flag_meanings import flags_of
from insitu.server.explorer.forecast_view import forecast_views, python_of_view, split_view
from insitu.server.explorer.opened_archives import COLLECTION, OpenedArchive
from insitu.server.explorer.projected_grid import projection_problems
from insitu.server.explorer.recognise_archives import format_by_suffix
from insitu.server.explorer.shown_values import attribute_texts, kind_of, to_text, type_name, units_of
from insitu.server.explorer.spatial_dimensions import dimension_coordinates, spatial_dimensions

__all__ = ["prepare_summary"]

MAX_COUNTED_CELLS = 4 << 20
"""Cells of a table that are looked up to count them; of a larger one, an even sample."""
MAX_CODEC_CHAINS = 20
"""Codec chains of a variable that are shown."""
MAX_LEFT_OUT = 200
"""Files that are named as left out."""


def prepare_summary(request: ArchiveRequest) -> ApiTask:
    """Return the task of `api/archive`."""

    def work(context: ReadContext) -> ApiAnswer:
        memo = request.archive.memo
        if "summary" not in memo:
            memo["summary"] = json_answer(summarise(request.archive, context))
        answer: ApiAnswer = memo["summary"]
        return answer

    return ApiTask(work, cost=8 << 20)


def summarise(archive: OpenedArchive, context: ReadContext) -> dict[str, Any]:
    """Return what an archive holds, for JSON."""
    groups = [_summarise_group(archive, path, member) for path, member in archive.members.items()]
    variables = [variable for group in groups for variable in group["variables"]]
    formats = [member.details.format for member in archive.members.values() if member.details.format]
    view, stored = split_view(archive.url)
    return {
        "url": archive.url,
        "urls": [stored] if stored != COLLECTION else [str(url) for url in archive.archive.urls],
        "forecasts": forecast_views(archive.stored or archive, context),
        "python": python_of_view(view),
        "format": formats[0] if formats else format_by_suffix(str(next(iter(archive.archive.urls), ""))),
        "files": count_files(list(_arrays(archive))) or len(archive.archive.urls),
        "stored_bytes": sum(variable["stored_bytes"] for variable in variables),
        "virtual_bytes": sum(variable["virtual_bytes"] for variable in variables),
        "notes": [*_notes(archive), *({"path": at, "text": why} for at, why in projection_problems(archive).items())],
        "groups": groups,
    }


def _arrays(archive: OpenedArchive) -> Iterator[VirtualArray]:
    for member in archive.members.values():
        for variable in member.variables.values():
            if isinstance(variable.data, VirtualArray):
                yield variable.data


def _notes(archive: OpenedArchive) -> Iterator[dict[str, str]]:
    for number, (url, reason) in enumerate(archive.left_out.items()):
        if number == MAX_LEFT_OUT:
            yield {"path": "", "text": f"{len(archive.left_out) - number} further files are left out"}
            break
        yield {"path": url, "text": f"the file is left out: {public_message(InsituError(reason))}"}
    for path, reason in archive.left_out_groups.items():
        yield {"path": f"/{path}", "text": f"the group is left out: {public_message(InsituError(reason))}"}
    for path, member in archive.members.items():
        yield from ({"path": path or "/", "text": text} for text in detail_notes(member.details))
        for name, variable in member.variables.items():
            if isinstance(variable.data, VirtualArray):
                place = f"{path}/{name}" if path else name
                yield from ({"path": place, "text": text} for text in detail_notes(variable.data.details))


def _summarise_group(archive: OpenedArchive, path: str, member: Member) -> dict[str, Any]:
    return {
        "path": path,
        "attributes": attribute_texts(member.attributes),
        "dimensions": [{"name": name, "size": size} for name, size in member.sizes.items()],
        "problems": [
            {"name": name, "reason": public_message(InsituError(text))} for name, text in member.problems.items()
        ],
        "variables": [_summarise_variable(archive, path, name) for name in member.variables],
    }


def _summarise_variable(archive: OpenedArchive, group: str, name: str) -> dict[str, Any]:
    check_deadline()
    path = f"{group}/{name}" if group else name
    variable = archive.variable(path)
    about = {
        "path": path,
        "name": name,
        "dims": list(variable.dims),
        "shape": list(variable.shape),
        "is_coordinate": name in archive.member(group).coords,
        "attributes": attribute_texts(variable.attributes),
        "long_name": _text_or_none(variable.attributes.get("long_name")),
        "standard_name": _text_or_none(variable.attributes.get("standard_name")),
        "spatial": spatial_dimensions(archive, group, variable),
        "map": map_summary(find_map(archive, group, variable)),
        "coordinates": dimension_coordinates(archive, group, variable),
    }
    try:
        array = archive.array(path)
    except InsituError as error:  # objects in memory of a type that no array holds
        no_chunks: dict[str, Any] = {
            "chunk_shape": None,
            "chunks": 0,
            "tiles": 0,
            "codecs": [],
            "stored_bytes": 0,
            "virtual_bytes": 0,
        }
        reason = public_message(error)
        types = {
            "dtype": str(variable.dtype),
            "kind": "other",
            "units": None,
            "flags": None,
            "files": 0,
            "unreadable": reason,
        }
        return about | no_chunks | types
    counted, encodings = count_cells(array, MAX_COUNTED_CELLS), distinct_encodings(array)
    return about | {
        "dtype": type_name(array),
        "kind": kind_of(array),
        "units": units_of(array),
        "flags": flags_of(array.attributes),
        "chunk_shape": _chunk_shape(array),
        "chunks": counted.cells,
        "tiles": len(array.tiles),
        "codecs": list(dict.fromkeys(map(codec_chain_text, encodings)))[:MAX_CODEC_CHAINS],
        "stored_bytes": counted.nbytes,
        "virtual_bytes": array.nbytes,
        "files": count_files([array]),
        "unreadable": next(map(public_message, find_undecodable(array)), None),
    }


def distinct_encodings(array: VirtualArray) -> list[Encoding]:
    """Return the encodings of an array, each object once: the tiles of alike files share theirs."""
    found = {id(encoding): encoding for tile in array.tiles for encoding in tile.encodings}
    return list(dict.fromkeys(found.values()))


def count_files(arrays: Sequence[VirtualArray]) -> int:
    """Return how many objects hold the chunks of arrays; those of Zarr keys are counted, not listed."""
    listed: set[str] = set()
    computed: dict[int, int] = {}
    for array in arrays:
        for tile in array.tiles:
            sources = tile.chunks.sources
            if isinstance(sources, (tuple, list)):
                listed.update(source.url for source in sources)
            else:
                computed[id(sources)] = len(sources)
    return len(listed) + sum(computed.values())


def _chunk_shape(array: VirtualArray) -> list[int] | None:
    """Return the shape of the chunks if it is the same throughout, but for borders."""
    shapes = set()
    for tile in array.tiles:
        axes = [tile.axis_of(dimension) for dimension in range(array.ndim)]
        if not all(axis.is_regular for axis in axes):
            return None
        shapes.add(tuple(int(axis.size) for axis in axes))
        if len(shapes) > 1:
            return None
    return list(shapes.pop()) if shapes else None


def _text_or_none(value: Any) -> str | None:
    return None if value is None else to_text(value)
