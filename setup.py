"""What pyproject.toml cannot say: C extensions that may fail to build, and the libraries they link.

Everything works without the extensions (NumPy and other libraries do the same, slower), so a missing
compiler must not stop an installation. Wheels are for those who have none: `INSITU_REQUIRE_EXTENSIONS=1`,
which every build of a wheel for others sets, makes a missing extension or library an error.

Zstandard and libdeflate are compiled into `_kernels` from `native_sources/` (scripts/native_sources.py
fetches it, source archives contain it). Where that folder is missing, or `INSITU_SYSTEM_LIBRARIES=1` is
set, pkg-config is asked for those of the system.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# One build for every Python from 3.11 on; the free-threaded one has no limited API.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")
WINDOWS = os.name == "nt"
REQUIRED = os.environ.get("INSITU_REQUIRE_EXTENSIONS") == "1"
NATIVE = Path("native_sources")
SANITIZED = os.environ.get("INSITU_SANITIZE") == "1"
"""Whether to build with AddressSanitizer and UndefinedBehaviorSanitizer (`make asan`)."""
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-O1", "-g"]
LIBRARIES = {"zstd": "libzstd", "libdeflate": "libdeflate"}
"""Folder of the sources, and the name that pkg-config knows."""


def extension(name: str, *others: str) -> Extension:
    """One module of C files that lie side by side."""
    folder = Path("src/insitu", *name.split(".")[:-1])
    return Extension(
        f"insitu.{name}",
        sources=[str(folder / f"{stem}.c") for stem in (name.split(".")[-1], *others)],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
        py_limited_api=LIMITED,
        depends=["src/insitu/_extension_module.h", *map(str, folder.glob("*.h"))],
        extra_compile_args=["/O2"]
        if WINDOWS
        else [*(SANITIZERS if SANITIZED else ["-O3", "-g0"]), "-fvisibility=hidden"],
        extra_link_args=SANITIZERS[:1] if SANITIZED else [],
        optional=not REQUIRED,
    )


def exports() -> list[str]:
    """Link options that hide the symbols of the libraries: no other copy of one in the process may take our calls."""
    if sys.platform == "darwin":
        return ["-Wl,-exported_symbol,_PyInit__kernels"]
    return ["-Wl,--version-script=src/insitu/codecs/exports.map"] if sys.platform == "linux" else []


def link(kernels: Extension) -> Extension:
    """Add the decompressors that can be had to an extension."""
    kernels.extra_link_args += exports()
    for name, package in LIBRARIES.items():
        sources = sorted((NATIVE / name).rglob("*.c"))
        flags = pkg_config(package) if os.environ.get("INSITU_SYSTEM_LIBRARIES") == "1" or not sources else None
        if flags is not None:
            kernels.extra_compile_args += flags[0]
            kernels.extra_link_args += flags[1]
        elif sources:
            # Assembly for x86-64, empty elsewhere; Microsoft's compiler does not take it.
            sources += [] if WINDOWS else sorted((NATIVE / name).rglob("*.S"))
            kernels.sources += map(str, sources)
            kernels.include_dirs.append(str(NATIVE / name))
        elif REQUIRED:
            raise SystemExit(f"there are no sources of {name} to link: run `python scripts/native_sources.py` before")
        else:
            continue
        kernels.define_macros.append((f"WITH_{name.upper()}", "1"))
    if WINDOWS:
        kernels.define_macros.append(("ZSTD_DISABLE_ASM", "1"))
    return kernels


def pkg_config(package: str) -> tuple[list[str], list[str]] | None:
    """Options for the compiler and the linker, of a library of the system; None without its headers."""
    found = []
    for wanted in ("--cflags", "--libs"):
        try:
            asked = subprocess.run(["pkg-config", wanted, package], capture_output=True, text=True)
        except OSError:
            return None
        if asked.returncode:
            return None
        found.append(shlex.split(asked.stdout))
    return found[0], found[1]


class BuildExtensions(build_ext):
    """Compiles assembly as well."""

    def build_extensions(self) -> None:
        """Compile all of them."""
        if ".S" not in self.compiler.src_extensions:
            self.compiler.src_extensions.append(".S")
        super().build_extensions()


setup(
    ext_modules=[
        link(extension("codecs._kernels", "_decompressors")),
        extension("formats.hdf5.structures._metadata", "_objects"),
        extension("sources._scatter"),
    ],
    cmdclass={"build_ext": BuildExtensions},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
