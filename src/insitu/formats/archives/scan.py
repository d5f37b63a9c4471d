"""What is in the files of a zip or tar archive?

Each member that is not compressed and of a format that is read here becomes a group at its path: `insitu.open_dataset("runs.tar", group="2024/jan.nc")`. Chunks are ranges of the archive itself, so nothing is
unpacked, now or later. Only the members that are asked for are looked at. (A zip file that holds a Zarr store is opened as that store.)
"""

from __future__ import annotations

from collections.abc import Collection

from insitu.errors import FormatError, InsituError, SourceError, VariableError
from insitu.formats.archives.member import Member, Part, moved
from insitu.formats.archives.tape import is_header, tar_members
from insitu.formats.archives.zipped import zip_members
from insitu.formats.choosing import below, picked
from insitu.formats.hdf5.walk import run
from insitu.formats.hdf5.window import Window
from insitu.formats.problems import Problems
from insitu.model import VirtualGroup

__all__ = ["is_tar", "is_zip", "scan_tar", "scan_zip"]


def is_zip(window: Window) -> bool:
    """Whether a file begins as a zip archive does."""
    return window.head[:4] in (b"PK\3\4", b"PK\5\6")


def is_tar(window: Window) -> bool:
    """Whether a file begins with the header of a tar archive's member."""
    return is_header(window.head[:512])


def scan_zip(
    window: Window,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: str = "raise",
) -> VirtualGroup:
    """Scan the members of a zip archive.

    Parameters
    ----------
    window
        The archive's bytes.
    group
        Only this member, or this group in it, or this folder.
    variables
        Only these arrays, and their coordinates.
    errors
        "raise" or "warn".
    """
    return _tree(window, zip_members(window), "zip", group, variables, errors)


def scan_tar(
    window: Window,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: str = "raise",
) -> VirtualGroup:
    """Scan the members of a tar archive: see `scan_zip`."""
    return _tree(window, run(tar_members(window.size, window.url), window), "tar", group, variables, errors)


def _tree(
    window: Window,
    members: list[Member],
    kind: str,
    group: str | None,
    variables: Collection[str] | None,
    errors: str,
) -> VirtualGroup:
    from insitu.formats.detect import scan_format  # not at the top: it knows us

    problems = Problems(errors)
    asked = (group or "").strip("/")
    found: dict[str, VirtualGroup] = {}
    foreign = True
    for member in members:
        path = _path(member.name)
        if not path or not _wanted(path, asked):
            continue
        if member.hidden:
            foreign = False
            problems.note(path, f"{member.hidden}: unpack the archive")
            if path == asked or asked.startswith(f"{path}/"):
                raise VariableError(f"member {path!r} cannot be read by range: {member.hidden}", url=window.url)
            continue
        try:
            tree = scan_format(Part(window.source, member), errors=errors)
            found[path] = moved(tree, member.offset)
        except SourceError:
            raise
        except InsituError as problem:
            if isinstance(problem, FormatError) and problem.place.get("structure") == "signature":
                problems.note(path, str(problem))  # something else: a text, a picture
            else:
                foreign = False
                problems.leave_out(path, problem)
    if not found and foreign and not asked:
        names = ", ".join(_path(member.name) for member in members[:12])
        raise FormatError(
            f"a {kind} archive without a member of a format that is known here",
            url=window.url,
            hint=f"There are: {names or 'none'}",
        )
    tree = _nested(found, kind, problems)
    if asked and not any(
        path == asked or path.startswith(f"{asked}/") or asked.startswith(f"{path}/") for path in found
    ):
        names = ", ".join(_path(member.name) for member in members[:12])
        raise VariableError(
            f"no member {group!r} that is read here", url=window.url, hint=f"There are: {names or 'none'}"
        )
    return picked(below(tree, group, url=window.url), variables, url=window.url)


def _path(name: str) -> str:
    """A member's name as a path: none of them leads out of the archive."""
    return "/".join(part for part in name.replace("\\", "/").split("/") if part not in ("", ".", ".."))


def _wanted(path: str, asked: str) -> bool:
    """Whether a member is the one asked for, lies in the folder asked for, or holds the group asked for."""
    return not asked or path == asked or path.startswith(f"{asked}/") or asked.startswith(f"{path}/")


def _nested(found: dict[str, VirtualGroup], kind: str, problems: Problems) -> VirtualGroup:
    """Groups in groups, as the members lie in folders."""
    tops: dict[str, dict[str, VirtualGroup]] = {}
    whole: dict[str, VirtualGroup] = {}
    for path, tree in found.items():
        top, slash, rest = path.partition("/")
        if slash:
            tops.setdefault(top, {})[rest] = tree
        else:
            whole[top] = tree
    groups = {name: _nested(parts, kind, Problems()) for name, parts in tops.items()}
    for name, tree in whole.items():
        groups[name] = tree
    return VirtualGroup({}, groups, {}, {"format": kind}, problems.found)
