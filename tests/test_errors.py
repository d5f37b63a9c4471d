"""Errors name the place and the way out, travel between processes, and can be caught as builtins."""

from __future__ import annotations

import pickle

import pytest

from insitu import errors


def test_an_error_says_where_and_what_to_do() -> None:
    problem = errors.FormatError(
        "no signature", url="a.h5", offset=96, structure="object header", hint="Scan another file"
    )
    assert str(problem) == "no signature [structure object header, offset 96, in a.h5]. Scan another file"
    assert (problem.url, problem.offset, problem.kind) == ("a.h5", 96, "format")


def test_an_outer_layer_adds_what_it_knows() -> None:
    problem = errors.CodecError("bad data", codec="zlib").with_context(
        url="b.h5", offset=10, length=5, codec="other", chunk=None
    )
    assert str(problem) == "bad data [codec zlib, bytes 10-15, in b.h5]"


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "InsituError"])
def test_every_error_is_ours_has_a_kind_and_travels(name: str) -> None:
    kind = getattr(errors, name)
    problem = kind("text", url="u", hint="do it")
    assert isinstance(problem, errors.InsituError)
    again = pickle.loads(pickle.dumps(problem))
    assert type(again) is kind
    assert str(again) == str(problem) == "text [in u]. do it"
    assert kind.kind != errors.InsituError.kind


def test_kinds_are_distinct() -> None:
    kinds = [getattr(errors, name).kind for name in errors.__all__]
    assert len(set(kinds)) == len(kinds)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.FormatError, ValueError),
        (errors.UnsupportedError, NotImplementedError),
        (errors.SourceError, OSError),
        (errors.NotFoundError, FileNotFoundError),
        (errors.AccessError, PermissionError),
        (errors.TimedOutError, TimeoutError),
        (errors.CodecError, ValueError),
        (errors.UnknownCodecError, LookupError),
        (errors.SelectionError, IndexError),
        (errors.VariableError, KeyError),
        (errors.GroupError, KeyError),
        (errors.GroupError, OSError),
        (errors.ModelError, ValueError),
    ],
)
def test_errors_are_the_natural_builtins_too(error: type, builtin: type) -> None:
    assert issubclass(error, builtin)
