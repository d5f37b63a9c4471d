"""Scan zip and tar archives: each member of a known format becomes a group at its path.

`insitu.open_dataset("runs.tar", group="2024/jan.nc")` opens one. Members must not be compressed:
chunks are ranges of the archive itself, so nothing is unpacked. Folders that are Zarr stores are
groups too. Only the members that are asked for are scanned. An archive that is one Zarr store is
opened as that store. An archive within an archive is refused by name.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from insitu.errors import FormatError, InsituError, SourceError, UnsupportedError, VariableError
from insitu.formats.containers.archive_member import ArchiveMember, MemberSource, member_path, shift_offsets
from insitu.formats.containers.member_list import is_tar, is_zip, list_members, read_members
from insitu.formats.containers.zarr_folders import ZarrFolder, find_store_roots
from insitu.formats.containers.zip_members import find_offsets
from insitu.formats.detect import scan_window
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.registry import Format
from insitu.formats.unreadable import Problems
from insitu.formats.variable_filter import select_variables, subtree
from insitu.model import GroupDetails, VirtualGroup
from insitu.sources.protocol import ByteSource, WrappedSource

__all__ = ["TAR", "ZIP", "ScopedArchive", "scan_tar", "scan_zip"]


class ScanRequest(NamedTuple):
    """What a caller asks for."""

    group: str | None
    variables: Collection[str] | None
    errors: str
    storage_options: Mapping[str, Any] | None
    format: str | None = None
    """Of the member asked for, by name."""

    def for_member(self, path: str) -> ScanRequest:
        """Return the same request, seen from a member at the beginning of the path."""
        rest = (self.group or "").strip("/")[len(path) :].strip("/")
        return self._replace(group=rest or None)

    def for_whole_member(self) -> ScanRequest:
        """Return a request for all of a member."""
        return self._replace(group=None, variables=None)


def scan_zip(
    window: ReadCache,
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
    wanted = ScanRequest(group, variables, errors, window.storage_options)
    return _scan_members(window.source, read_members(window, "zip"), "zip", wanted)


def scan_tar(
    window: ReadCache,
    *,
    group: str | None = None,
    variables: Collection[str] | None = None,
    errors: str = "raise",
) -> VirtualGroup:
    """Scan the members of a tar archive: see `scan_zip`."""
    wanted = ScanRequest(group, variables, errors, window.storage_options)
    return _scan_members(window.source, read_members(window, "tar"), "tar", wanted)


class ScopedArchive(WrappedSource):
    """An archive that is opened for one of its members.

    Its bytes are the archive's, a scan sees only the member.
    """

    def __init__(self, source: ByteSource, path: str) -> None:
        super().__init__(source)
        self.path = path

    @property
    def url(self) -> str:
        """The archive's, and the member's path."""
        return f"{self.source.url}::{self.path}"

    def scan(
        self,
        *,
        group: str | None = None,
        variables: Collection[str] | None = None,
        errors: str = "raise",
        format: str | None = None,
        storage_options: Mapping[str, object] | None = None,
    ) -> VirtualGroup:
        """Scan the member as if it were a file: see `scan_zip`."""
        path = f"{self.path}/{group.strip('/')}" if group and group.strip("/") else self.path
        wanted = ScanRequest(path, variables, errors, storage_options, format=format)
        return _scan_members(self.source, list_members(self.source), "archive", wanted)


def _scan_members(source: ByteSource, members: list[ArchiveMember], kind: str, wanted: ScanRequest) -> VirtualGroup:
    """Scan the members that were asked for."""
    url = source.url
    asked = (wanted.group or "").strip("/")
    files = {path: member for member in members if (path := member_path(member.name))}  # the last of a name counts
    roots = find_store_roots([*files])
    if roots and _is_only_store(roots, files) and not _is_within(asked, roots[0]):
        return _scan_zarr_folder(source, roots[0], files, wanted)
    for root in roots:
        if _is_within(asked, root):
            return _scan_zarr_folder(source, root, files, wanted.for_member(root))
    units = {path: member for path, member in files.items() if not any(_is_within(path, root) for root in roots)}
    one = next((path for path in units if _is_within(asked, path)), None)
    if one is not None:
        return _scan_one(source, units[one], one, wanted)
    chosen = [path for path in units if not asked or path.startswith(f"{asked}/")]
    stores = [root for root in roots if not asked or root.startswith(f"{asked}/")]
    if asked and not chosen and not stores:
        raise _no_member_error(asked, [*units, *roots], url)
    problems = Problems(wanted.errors)
    found = _scan_all(source, units, chosen, problems, wanted)
    for root in stores:
        try:
            found[root] = _scan_zarr_folder(source, root, files, wanted.for_whole_member())
        except SourceError:
            raise
        except InsituError as problem:
            problems.leave_out(root, problem)
    if (
        not found
        and not asked
        and not any(units[path].problem for path in chosen)
        and not problems.found.keys() - units.keys()
    ):
        raise FormatError(
            f"no member of the {kind} archive has a known format",
            url=url,
            hint=f"Its members: {', '.join([*units][:12]) or 'none'}",
        )
    if asked and not found:
        raise _no_member_error(asked, [*units, *roots], url)
    return select_variables(
        subtree(_nest_groups(found, kind, problems), wanted.group, url=url), wanted.variables, url=url
    )


def _scan_all(
    source: ByteSource, units: dict[str, ArchiveMember], chosen: list[str], problems: Problems, wanted: ScanRequest
) -> dict[str, VirtualGroup]:
    """Scan the members that are files of a known format."""
    found: dict[str, VirtualGroup] = {}
    plain = [path for path in chosen if not units[path].problem]
    for path in chosen:
        if units[path].problem:
            problems.note(path, f"{units[path].problem}: unpack the archive to read it")
    for path, member in zip(plain, find_offsets([units[path] for path in plain], source), strict=True):
        if member.problem:
            problems.note(path, member.problem)
            continue
        try:
            found[path] = _scan_member(source, member, wanted.for_whole_member())
        except SourceError:
            raise
        except InsituError as problem:
            if isinstance(problem, FormatError) and problem.place.get("structure") == "signature":
                problems.note(path, str(problem))  # something else: a text, a picture
            else:
                problems.leave_out(path, problem)
    return found


def _scan_one(source: ByteSource, member: ArchiveMember, path: str, wanted: ScanRequest) -> VirtualGroup:
    """Scan one member that was asked for by name."""
    (there,) = find_offsets([member], source)
    if there.problem:
        raise VariableError(
            f"member {path!r} cannot be read by range: {there.problem}",
            url=source.url,
            hint="Make the archive without compression (zip -0), or unpack it",
        )
    return _scan_member(source, there, wanted.for_member(path))


def _scan_member(source: ByteSource, member: ArchiveMember, wanted: ScanRequest) -> VirtualGroup:
    """Scan one member as a file of its own."""
    window = ReadCache(MemberSource(source, member), storage_options=wanted.storage_options)
    kind = wanted.format or ("zip" if is_zip(window) else "tar" if is_tar(window) else None)
    if kind in ("zip", "tar"):
        raise UnsupportedError(
            f"the member is a {kind} archive itself: archives within archives are not supported",
            url=window.url,
            hint="Unpack the outer archive, and open the inner one",
        )
    tree = scan_window(
        window, group=wanted.group, variables=wanted.variables, errors=wanted.errors, format=wanted.format
    )
    return shift_offsets(tree, member.offset, source.describe().url)


def _scan_zarr_folder(
    source: ByteSource, root: str, files: dict[str, ArchiveMember], wanted: ScanRequest
) -> VirtualGroup:
    """Scan a folder that is a Zarr store."""
    from insitu.formats.zarr import scan_store  # not at the top: most archives hold none

    prefix = f"{root}/" if root else ""
    inside = {path[len(prefix) :]: member for path, member in files.items() if path.startswith(prefix)}
    kept = ZarrFolder(source, root, inside, wanted.storage_options)
    found = scan_store(kept, group=wanted.group, variables=wanted.variables, errors=wanted.errors)
    if found is None:
        raise FormatError("the folder holds Zarr metadata, but no store", url=kept.url, structure="zarr.json")
    return found


def _is_within(path: str, root: str) -> bool:
    """Return whether a path is that of a member (or store), or lies in it."""
    return bool(path) and (not root or path == root or path.startswith(f"{root}/"))


def _is_only_store(roots: list[str], files: dict[str, ArchiveMember]) -> bool:
    return len(roots) == 1 and all(_is_within(path, roots[0]) for path in files)


def _no_member_error(path: str, names: list[str], url: str) -> VariableError:
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return VariableError(
        f"the archive has no readable member {path!r}", url=url, hint=f"Its members: {shown or 'none'}"
    )


def _nest_groups(found: dict[str, VirtualGroup], kind: str, problems: Problems) -> VirtualGroup:
    """Return groups in groups, as the members lie in folders."""
    tops: dict[str, dict[str, VirtualGroup]] = {}
    whole: dict[str, VirtualGroup] = {}
    for path, tree in found.items():
        top, slash, rest = path.partition("/")
        if slash:
            tops.setdefault(top, {})[rest] = tree
        else:
            whole[top] = tree
    groups = {name: _nest_groups(parts, kind, Problems()) for name, parts in tops.items()}
    for name, tree in whole.items():
        groups[name] = tree
    return VirtualGroup({}, groups, {}, GroupDetails(kind), problems.found)


ZIP = Format(is_zip, scan_zip)
TAR = Format(is_tar, scan_tar)
