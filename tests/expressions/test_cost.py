"""What an expression takes is known before any of it is read; tables of chunks are only looked into where that is
asked for.

Modules: model/elementwise.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

from insitu.expressions.cost import cost
from insitu.expressions.element_operations import combine
from insitu.expressions.nodes import Expression, Stored
from insitu.model import Axis, Codec, Columns, Encoding, Selection, Source, Tile, VirtualArray
from insitu.model.elementwise import Members
from insitu.reading import ReadContext

ZIPPED = Encoding(np.dtype("f4"), (Codec("zlib", {}),), None, bytes(4))


def stored(length: int, size: int, table: Any = None, key: Any = ...) -> Stored:
    axis = Axis.regular(length, size)
    array = VirtualArray.of(Tile((axis,), (ZIPPED,), table or Columns.of_unwritten((axis.count,))), dims=("x",))
    return Stored(array, ReadContext("x"), Selection.of(key, array.shape))


def computed(function: str, *given: Any) -> Expression:
    made = combine(function, *given)
    assert made is not None
    return made


def test_of_a_stored_array() -> None:
    found = cost(stored(100, 10, key=slice(5, 25)))
    assert (found.chunk, found.bytes_decoded) == (10 * 4, 3 * 10 * 4)
    assert (found.operations, found.members, found.parts) == (0, 0, ())


def test_of_a_formula() -> None:
    array = stored(100, 10)
    doubled = computed("multiply", array, 2.0)
    both = computed("is_in", computed("add", doubled, doubled), Members(np.arange(5.0)))
    found, alone = cost(both), cost(array)
    assert found.operations == 3 * 100, "what is shared is computed once"
    assert (found.plan, found.bytes_decoded) == (alone.plan, alone.bytes_decoded), "and read once"
    assert found.members == 5 * 8
    assert found.bytes_per_element > 4 + 4 + 4 + 1


class Untouched:
    """A table that must not be looked into."""

    shape = (1 << 40,)
    sources = (Source("https://host/a"),)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of the table was asked for")


def test_arithmetic_alone() -> None:
    array = stored(1 << 42, 4, Untouched(), np.s_[::2])
    found = cost(computed("sqrt", array))
    assert found.is_remote
    assert found.plan > 1 << 40
    assert found.bytes_decoded == 4 << 42


def test_chunks_files_and_requests_are_in_the_table() -> None:
    table = Columns(
        (4,), (Source("/a"), Source("/b")), np.array([0, 0, 1, -1]), np.array([0, 10, 0, 0]), np.array([10, 5, 7, 0])
    )
    (part,) = cost(stored(40, 10, table), looks_into_tables=True).parts
    assert part == ("x", 3, 22, 3 * 10 * 4, 2, 2)
