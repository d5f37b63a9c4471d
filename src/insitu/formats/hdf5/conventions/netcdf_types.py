"""Which datatypes netCDF-C knows when it meets a variable.

netCDF-C always knows numbers and strings. Of other types it keeps a list. A type that is not in the
list is read and added; it can be used at once if all of its parts are numbers, strings or in the
list. Otherwise, or if netCDF has no name for its class (arrays, bit fields), the variable is
dropped, but the type stays in the list, so that the next variable of the same type is accepted.
Which variables are accepted decides the numbers of dimensions without names, so netCDF-C 4.10 is
followed here, down to the types that it considers equal: those with equal native types.
"""

from __future__ import annotations

from typing import Any

from insitu.formats.hdf5.structures.datatype import Datatype

__all__ = ["KnownTypes"]

Key = tuple[Any, ...]


class KnownTypes:
    """The list, as it grows."""

    __slots__ = ("_keys",)

    def __init__(self) -> None:
        self._keys: set[Key] = set()

    def accepts(self, datatype: Datatype, committed: bool) -> bool:
        """Whether netCDF accepts a variable of a type.

        Parameters
        ----------
        datatype
            Of the variable.
        committed
            Whether the type has a name in the file: then it is in the list already.
        """
        if not datatype.shape:
            if _is_atomic(datatype):
                return True
            if datatype.kind == "reference":
                return False
        key = _native_key(datatype, datatype.shape)
        if committed or key in self._keys:
            self._keys.add(key)
            return True
        self._keys.add(key)
        if datatype.shape or datatype.kind in ("number", "time"):
            return datatype.dtype.kind in "cb" and not datatype.shape
        if datatype.kind == "compound":
            return all(self._resolves(member) for _, _, _, member in datatype.parts)
        return datatype.base is None or self._resolves(datatype.base)

    def _resolves(self, part: Datatype) -> bool:
        """Whether the type of a member, or of the elements of a sequence, is known."""
        return _is_atomic(part) or _native_key(part, ()) in self._keys


def _is_atomic(datatype: Datatype) -> bool:
    """Whether a type, or the type of its elements, is a number or a text.

    The bool of h5py is an enumeration, its complex numbers are compounds.
    """
    if datatype.kind == "number":
        return datatype.dtype.kind not in "bc" and datatype.note != "bits"
    return datatype.kind in ("string", "text")


def _native_key(datatype: Datatype, shape: tuple[int, ...]) -> Key:
    """What two types have in common whose native forms are equal."""
    kind, dtype = datatype.kind, datatype.dtype
    if shape:
        return ("array", shape, _native_key(datatype, ()))
    if kind == "number" and dtype.kind == "c":
        part = ("number", f"f{dtype.itemsize // 2}", "")
        return ("compound", (("r", (), part), ("i", (), part)))
    if kind == "compound":
        return (kind, tuple((name, dims, _native_key(member, ())) for name, _, dims, member in datatype.parts))
    if kind == "sequence":
        assert datatype.base is not None
        return (kind, _native_key(datatype.base, datatype.base.shape))
    if kind == "string":
        return (kind, datatype.size, datatype.charset, datatype.padding)
    names = None if datatype.names is None else tuple(datatype.names.items())
    return (kind, dtype.newbyteorder("=").str, datatype.note, names)
