"""The one thing that pyproject.toml cannot say yet: a C extension that may fail to build.

Everything works without it (NumPy does the same, slower), so a missing compiler must not stop an installation.
"""

from __future__ import annotations

import os
import sysconfig

from setuptools import Extension, setup

# One build for every Python from 3.11 on; the free-threaded one has no limited API.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")


def extension(name: str) -> Extension:
    """One C file that gives one module."""
    return Extension(
        f"insitu.{name}",
        sources=[f"src/insitu/{name.replace('.', '/')}.c"],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
        py_limited_api=LIMITED,
        extra_compile_args=["/O2"] if os.name == "nt" else ["-O3"],
        optional=True,
    )


setup(
    ext_modules=[
        extension("codecs._kernels"),
        extension("formats.hdf5.structures._metadata"),
        extension("sources._scatter"),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
