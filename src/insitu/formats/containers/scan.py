"""Scan zip and tar archives: each entry of a known format becomes a group at its path.

`insitu.open_dataset("runs.tar", group="2024/jan.nc")` opens one. Entries must not be compressed:
chunks are ranges of the archive itself, so nothing is unpacked. Folders that are Zarr stores are
groups too. Only the entries that are asked for are scanned. An archive that is one Zarr store is
opened as that store. An archive within an archive is refused by name.
"""

from __future__ import annotations

from dataclasses import replace

from insitu.errors import FormatError, InsituError, SourceError, UnsupportedError, VariableError, error_context
from insitu.formats.containers.archive_entry import ArchiveEntry, EntrySource, shift_offsets
from insitu.formats.containers.entry_list import is_tar, is_zip, list_entries, read_entries
from insitu.formats.containers.entry_urls import entry_path
from insitu.formats.containers.zarr_folders import ZarrFolder, find_store_roots
from insitu.formats.containers.zip_entries import find_offsets
from insitu.formats.detect import scan_window
from insitu.formats.parsing.read_cache import ReadCache
from insitu.formats.registry import Format
from insitu.formats.scan_request import ScanRequest, with_keywords
from insitu.formats.unreadable import Problems
from insitu.model import GroupDetails, VirtualGroup
from insitu.sources.protocol import ByteSource, WrappedSource

__all__ = ["TAR", "ZIP", "ScopedArchive", "scan_tar", "scan_zip"]


def scan_zip(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Return the entries of a zip archive as groups at their paths."""
    return _scan_entries(window.source, read_entries(window, "zip"), "zip", request)


def scan_tar(window: ReadCache, request: ScanRequest) -> VirtualGroup:
    """Return the entries of a tar archive as groups at their paths."""
    return _scan_entries(window.source, read_entries(window, "tar"), "tar", request)


class ScopedArchive(WrappedSource):
    """An archive that is opened for one of its entries.

    Its bytes are the archive's, a scan sees only the entry.
    """

    def __init__(self, source: ByteSource, path: str) -> None:
        super().__init__(source)
        self.path = path

    @property
    def url(self) -> str:
        """The archive's, and the entry's path."""
        return f"{self.source.url}::{self.path}"

    def scan(self, request: ScanRequest) -> VirtualGroup:
        """Scan the entry as if it were a file."""
        inner_request = replace(request, group=f"{self.path}/{request.group_path}".rstrip("/"))
        with error_context(url=self.source.url):
            return _scan_entries(self.source, list_entries(self.source), "archive", inner_request)


def _scan_entries(source: ByteSource, entries: list[ArchiveEntry], kind: str, request: ScanRequest) -> VirtualGroup:
    """Scan the entries that were asked for."""
    group_path = request.group_path
    files = {path: entry for entry in entries if (path := entry_path(entry.name))}  # the last of a name counts
    roots = find_store_roots([*files])
    if roots and _is_only_store(roots, files) and not _is_within(group_path, roots[0]):
        return _scan_zarr_folder(source, roots[0], files, request)
    for root in roots:
        if _is_within(group_path, root):
            return _scan_zarr_folder(source, root, files, request.for_entry(root))
    units = {path: entry for path, entry in files.items() if not any(_is_within(path, root) for root in roots)}
    one = next((path for path in units if _is_within(group_path, path)), None)
    if one is not None:
        return _scan_one(source, units[one], one, request)
    chosen = [path for path in units if not group_path or path.startswith(f"{group_path}/")]
    stores = [root for root in roots if not group_path or root.startswith(f"{group_path}/")]
    if group_path and not chosen and not stores:
        raise _no_entry_error(group_path, [*units, *roots])
    problems = Problems(request.errors, source.url)
    found = _scan_all(source, units, chosen, problems, request)
    for root in stores:
        try:
            found[root] = _scan_zarr_folder(source, root, files, request.for_whole_entry())
        except SourceError:
            raise
        except InsituError as problem:
            problems.leave_out(root, problem)
    if (
        not found
        and not group_path
        and not any(units[path].problem for path in chosen)
        and not problems.found.keys() - units.keys()
    ):
        raise FormatError(
            f"no member of the {kind} archive has a known format",
            hint=f"Its members: {', '.join([*units][:12]) or 'none'}",
        )
    if group_path and not found:
        raise _no_entry_error(group_path, [*units, *roots])
    return request.select(_nest_groups(found, kind, problems))


def _scan_all(
    source: ByteSource, units: dict[str, ArchiveEntry], chosen: list[str], problems: Problems, request: ScanRequest
) -> dict[str, VirtualGroup]:
    """Scan the entries that are files of a known format."""
    found: dict[str, VirtualGroup] = {}
    plain = [path for path in chosen if not units[path].problem]
    for path in chosen:
        if units[path].problem:
            problems.note(path, f"{units[path].problem}: unpack the archive to read it")
    for path, entry in zip(plain, find_offsets([units[path] for path in plain], source), strict=True):
        if entry.problem:
            problems.note(path, entry.problem)
            continue
        try:
            found[path] = _scan_entry(source, entry, request.for_whole_entry())
        except SourceError:
            raise
        except InsituError as problem:
            if isinstance(problem, FormatError) and problem.place.get("structure") == "signature":
                problems.note(path, str(problem))  # something else: a text, a picture
            else:
                problems.leave_out(path, problem)
    return found


def _scan_one(source: ByteSource, entry: ArchiveEntry, path: str, request: ScanRequest) -> VirtualGroup:
    """Scan one entry that was asked for by name."""
    (located,) = find_offsets([entry], source)
    if located.problem:
        raise VariableError(
            f"member {path!r} cannot be read by range: {located.problem}",
            hint="Make the archive without compression (zip -0), or unpack it",
        )
    return _scan_entry(source, located, request.for_entry(path))


def _scan_entry(source: ByteSource, entry: ArchiveEntry, request: ScanRequest) -> VirtualGroup:
    """Scan one entry as a file of its own."""
    window = ReadCache(EntrySource(source, entry), storage_options=request.storage_options)
    kind = request.format or ("zip" if is_zip(window) else "tar" if is_tar(window) else None)
    if kind in ("zip", "tar"):
        raise UnsupportedError(
            f"the member is a {kind} archive itself: archives within archives are not supported",
            url=window.url,
            hint="Unpack the outer archive, and open the inner one",
        )
    tree = scan_window(window, request)
    return shift_offsets(tree, entry.offset, source.describe().url)


def _scan_zarr_folder(
    source: ByteSource, root: str, files: dict[str, ArchiveEntry], request: ScanRequest
) -> VirtualGroup:
    """Scan a folder that is a Zarr store."""
    from insitu.formats.zarr import scan_store  # not at the top: most archives hold none

    prefix = f"{root}/" if root else ""
    store_entries = {path[len(prefix) :]: entry for path, entry in files.items() if path.startswith(prefix)}
    folder = ZarrFolder(source, root, store_entries, request.storage_options)
    found = scan_store(folder, request)
    if found is None:
        raise FormatError("the folder holds Zarr metadata, but no store", url=folder.url, structure="zarr.json")
    return found


def _is_within(path: str, root: str) -> bool:
    """Return whether a path is that of an entry (or store), or lies in it."""
    return bool(path) and (not root or path == root or path.startswith(f"{root}/"))


def _is_only_store(roots: list[str], files: dict[str, ArchiveEntry]) -> bool:
    return len(roots) == 1 and all(_is_within(path, roots[0]) for path in files)


def _no_entry_error(path: str, names: list[str]) -> VariableError:
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return VariableError(f"the archive has no readable member {path!r}", hint=f"Its members: {shown or 'none'}")


def _nest_groups(found: dict[str, VirtualGroup], kind: str, problems: Problems) -> VirtualGroup:
    """Return groups in groups, as the entries lie in folders."""
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


ZIP = Format(is_zip, with_keywords(scan_zip))
TAR = Format(is_tar, with_keywords(scan_tar))
