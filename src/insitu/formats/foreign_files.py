"""Name files of kinds that insitu does not read, by their first bytes, with advice for the user."""

from __future__ import annotations

import re

__all__ = ["identify_foreign_file"]

# First bytes of files that people mistake for arrays: the kind of file, and what to do about it.
_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"BUFR", "BUFR", "BUFR holds observations as messages, not arrays"),
    (b"\x1f\x8b", "a gzip archive", "Unpack it: byte ranges of a compressed file cannot be read"),
    (b"BZh", "a bzip2 archive", "Unpack it: byte ranges of a compressed file cannot be read"),
    (b"\xfd7zXZ", "an xz archive", "Unpack it: byte ranges of a compressed file cannot be read"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive", "Unpack it: byte ranges of a compressed file cannot be read"),
    (b"PAR1", "Parquet", "Parquet holds tables, not arrays"),
    (b"version https://git-lfs", "a Git LFS pointer", "Fetch the file itself with git lfs pull"),
)
_PAGE = re.compile(rb"(<\?xml[^>]*>\s*)?(<!doctype html|<html|<error)\b")
"""How the answers of servers begin."""


def identify_foreign_file(head: bytes) -> tuple[str, str] | None:
    """Return the kind of a file that insitu does not read, and what to do about it.

    None if unknown.
    """
    for magic, kind, hint in _KINDS:
        if head.startswith(magic):
            return kind, hint
    start = head[:1024].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if _PAGE.match(start):
        return (
            "an HTML or XML page",
            "A server may have sent it in place of the file. Check the URL in a browser: it may need a login",
        )
    if re.match(rb"<[?!a-z_]", start):
        return "an XML document", "Of these, only DMR++ says where the values of arrays lie"
    if start[:1] in (b"{", b"["):
        return "JSON", "If this is a kerchunk reference file, its name should end in .json"
    return None
