"""C sources of Zstandard and libdeflate, which the kernels are linked with, into `native_sources/`.

`python scripts/native_sources.py` lets pip download two source archives that bundle them (pinned,
with checksums, in constraints/native-sources.txt; from whatever index pip is configured for), and
unpacks the decompressors and the licences. `setup.py` compiles them into the extension; they belong
into the source archive of insitu, so that wheels can be built offline. Without them everything
works, but chunks are decoded one by one through imagecodecs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
PINS = ROOT / "constraints" / "native-sources.txt"
TARGET = ROOT / "native_sources"
STAMP = "pins.txt"
"""Copy of the pins that the sources were unpacked by; written last."""
SECONDS = 600


@dataclass(frozen=True, slots=True)
class Library:
    """Where a library lies in a source archive."""

    name: str
    archive: str
    folder: str
    files: tuple[str, ...]
    """Patterns, relative to the folder: decompression only."""
    licence: str


LIBRARIES = (
    Library(
        "zstd",
        "backports_zstd-*.tar.gz",
        "src/c/zstd/lib",
        (
            "zstd.h",
            "zstd_errors.h",
            "common/*.h",
            *(f"common/{name}.c" for name in ("debug", "entropy_common", "error_private", "fse_decompress")),
            "common/xxhash.c",
            "common/zstd_common.c",
            "decompress/*",
        ),
        "LICENSE_zstd.txt",
    ),
    Library(
        "libdeflate",
        "deflate-*.tar.gz",
        "libdeflate",
        (
            "libdeflate.h",
            "common_defs.h",
            "lib/*.h",
            "lib/*/cpu_features.c",
            *(f"lib/{name}.c" for name in ("adler32", "deflate_decompress", "utils", "zlib_decompress")),
        ),
        "libdeflate/COPYING",
    ),
)


def install() -> int:
    """Fetch and unpack the sources if they are missing or older than the pins; 1 if they cannot be had."""
    stamp = TARGET / STAMP
    if stamp.exists() and stamp.read_bytes() == PINS.read_bytes():
        return 0
    shutil.rmtree(TARGET, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        if not download(Path(folder)):
            print("the kernels are built without Zstandard and libdeflate: slower for small chunks", file=sys.stderr)
            return 1
        for library in LIBRARIES:
            (archive,) = Path(folder).glob(library.archive)
            unpack(archive, library)
    shutil.copyfile(PINS, stamp)
    return 0


def download(folder: Path) -> bool:
    """Let pip fetch the archives and compare their checksums; return whether it could."""
    names = ",".join(line.split("==")[0] for line in PINS.read_text().splitlines() if "==" in line)
    options = ["--no-deps", "--no-binary", names, "--require-hashes", "--ignore-requires-python"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *options]
    try:
        done = subprocess.run([*command, "--dest", str(folder), "--requirement", str(PINS)], timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def unpack(archive: Path, library: Library) -> None:
    """Write the library's files, and its licence beside ours."""
    found = 0
    with tarfile.open(archive) as opened:
        for inside, member in _files(opened):
            if inside == PurePosixPath(library.licence):
                _write(opened, member, ROOT / f"LICENSE.{library.name}")
            if not inside.is_relative_to(library.folder):
                continue
            place = inside.relative_to(library.folder)
            if any(fnmatchcase(str(place), pattern) for pattern in library.files):
                _write(opened, member, TARGET / library.name / place)
                found += 1
    if not found:
        raise SystemExit(f"{archive.name} has no {library.folder}: its layout has changed")


def _files(opened: tarfile.TarFile) -> Iterator[tuple[PurePosixPath, tarfile.TarInfo]]:
    """Yield the plain files of an archive with their paths below its single top folder."""
    for member in opened:
        parts = PurePosixPath(member.name).parts
        if member.isreg() and len(parts) > 1 and ".." not in parts:
            yield PurePosixPath(*parts[1:]), member


def _write(opened: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    content = opened.extractfile(member)
    assert content is not None  # it is a plain file
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.read())


if __name__ == "__main__":
    sys.exit(install())
