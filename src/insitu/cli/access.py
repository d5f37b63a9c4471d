"""Options that several verbs share, of which --verbose traces the requests to storage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from typing import Annotated, Any

import typer

from insitu.cli.screen import format_chunk_shape, format_codecs, stderr
from insitu.model import VirtualArray, VirtualGroup
from insitu.model.description import count_text, format_bytes
from insitu.open_options import OPTIONS, OVERLAPS, OpenOptions
from insitu.scanning.member import Member
from insitu.sources import Trace, trace

__all__ = [
    "AllowLocal",
    "Errors",
    "Inline",
    "Overwrite",
    "Raw",
    "StorageOption",
    "Verbose",
    "check_errors",
    "check_overlap",
    "describe_array",
    "flag_of",
    "spacings_of",
    "storage_options",
    "takes_open_options",
    "trace_storage",
]


def flag_of(name: str, **more: Any) -> Any:
    """Return the flag of an option of opening, with its words: see `insitu.open_options`."""
    about = OPTIONS[name]
    help = about.flag_help or f"{about.help}{'; may be repeated' if about.repeats else ''}."
    return typer.Option(*about.flags, help=help, **more)


StorageOption = Annotated[list[str] | None, flag_of("storage_options", metavar="NAME=VALUE")]
Errors = Annotated[str, flag_of("errors")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print what was read, to standard error.")]
AllowLocal = Annotated[
    bool, typer.Option("--allow-local", help="Allow references from another machine to name files of this one.")
]
Inline = Annotated[
    int, typer.Option("--inline", help="Store chunks of up to this many bytes in the references themselves.")
]
NativeWhereNeeded = Annotated[
    bool,
    typer.Option(
        "--native-where-needed",
        help="Copy what the format cannot hold, as native chunks beside the references or in the repository.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing target.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="Stored values, without scale, offset, missing values and times applied.")
]


def takes_open_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the flags of all options of opening that have one, after its own first two.

    They come as further keywords, by the names of the options: an option that gets a flag needs no
    change of the verb. Storage options, which every verb has, are not among them.
    """
    own = signature(verb, eval_str=True)
    first, second, *rest = [known for known in own.parameters.values() if known.kind is not Parameter.VAR_KEYWORD]
    usual = OpenOptions().values()
    flags = [
        Parameter(
            name,
            Parameter.POSITIONAL_OR_KEYWORD,
            default=usual[name] if isinstance(usual[name], (str, bool)) else None,
            annotation=Annotated[_type_of_flag(usual[name], about.repeats), flag_of(name)],
        )
        for name, about in OPTIONS.items()
        if about.flags and name != "storage_options"
    ]
    parameters = [first, second, *flags, *rest]
    verb.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    verb.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return verb


def _type_of_flag(usual: Any, repeats: bool) -> Any:
    return bool if isinstance(usual, bool) else list[str] | None if repeats else str | None


def check_errors(errors: str) -> None:
    """Raise an error if a value of --errors is unknown."""
    if errors not in ("raise", "warn", "skip"):
        raise typer.BadParameter("must be raise, warn or skip", param_hint="--errors")


def check_overlap(overlap: str | None) -> None:
    """Raise an error if a value of --overlap is unknown."""
    if overlap not in OVERLAPS:
        raise typer.BadParameter("must be error, first, last or newest", param_hint="--overlap")


def spacings_of(given: Sequence[str]) -> Any:
    """Return what --expect stands for: one spacing, or those of dimensions; None: none was given.

    Examples
    --------
    >>> spacings_of(["1D"]), spacings_of(["time=6h", "height=2.5"])
    ('1D', {'time': '6h', 'height': 2.5})
    """
    found: dict[str, Any] = {}
    for one in given:
        dim, _, text = one.rpartition("=")
        try:
            found[dim] = float(text)
        except ValueError:
            found[dim] = text
        if found[dim] == "" or (not dim and len(given) > 1):
            raise typer.BadParameter(
                f"{one!r} is not DIM=SPACING, which several dimensions need", param_hint="--expect"
            )
    return found.get("", found or None)


def storage_options(given: Sequence[str] | None) -> dict[str, Any] | None:
    """Return storage options as `insitu.scan` takes them.

    Examples
    --------
    >>> storage_options(["anon=true", "endpoint_url=http://localhost:9000", "timeout=5"])
    {'anon': True, 'endpoint_url': 'http://localhost:9000', 'timeout': 5}
    """
    if not given:
        return None
    found: dict[str, Any] = {}
    for pair in given:
        name, mark, value = pair.partition("=")
        if not mark or not name:
            raise typer.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint="--option")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value  # text needs no quotes
    return found


@contextmanager
def trace_storage(verbose: bool) -> Iterator[Trace]:
    """Trace requests to storage; with `verbose`, print a summary at the end."""
    with trace() as cost:
        yield cost
    if verbose:
        places = ", ".join(cost.places) or "nothing"
        stderr.print(
            f"storage | {places} | {count_text(cost.requests, 'request')} in {count_text(cost.waves, 'wave')} | "
            f"{format_bytes(cost.bytes)} | "
            f"{cost.seconds:.3f} s" + (f" | retried {cost.retries} times" if cost.retries else ""),
            markup=False,
            soft_wrap=True,
        )


def describe_array(name: str, array: VirtualArray, group: VirtualGroup | Member | None = None) -> str:
    """Return one line about an array: format, type, shape, chunks, codecs."""
    parts = [
        name,
        (group.details.format or "") if group is not None else "",
        str(array.dtype),
        "×".join(map(str, array.shape)) or "scalar",
        f"chunks {format_chunk_shape(array)}",
        f"codecs {format_codecs(encoding for tile in array.tiles for encoding in tile.encodings)}",
        f"{count_text(len(array.tiles), 'grid')} of {count_text(len(array.sources), 'object')}",
    ]
    return " | ".join(part for part in parts if part)
