"""Options of opening, scanning and combining archives: one frozen object for all functions.

Functions that users call have keywords of their own, with defaults and docstrings. What they were
given travels as one `OpenOptions`, in groups by who needs them. An option is one field here, with
its words for the command line and the documentation, and a keyword of the functions that take it;
tests compare the two. Settings of the process are elsewhere: `insitu.process_options`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Literal

__all__ = [
    "DEFAULT",
    "OPTIONS",
    "OVERLAPS",
    "About",
    "CombineOptions",
    "DecodeOptions",
    "OpenOptions",
    "ReadOptions",
    "RunOptions",
    "ScanOptions",
    "ShowOptions",
    "Verify",
    "follows_pattern",
]

Verify = Literal["open", "read", "never"]
PerVariable = Mapping[str, Any] | Any


class _XarrayDefault:
    """Stands for the default of the installed xarray."""

    def __repr__(self) -> str:
        return "xarray's default"

    def __reduce__(self) -> str:
        return "DEFAULT"


DEFAULT: Any = _XarrayDefault()
"""Value of a keyword that is left to the installed xarray."""


@dataclass(frozen=True, slots=True)
class About:
    """What is known of an option beside its name and its default."""

    help: str
    """One line, for the documentation and the command line."""
    flags: tuple[str, ...] = ()
    """Its names on the command line, of `insitu scan`."""
    flag_help: str | None = None
    """Its words there, where they are not `help`."""
    repeats: bool = False
    """Whether its flag may be given several times."""
    is_saved: bool = False
    """Whether a recipe holds it: files that are added or refreshed later are opened with it."""
    changes_scan: bool = False
    """Whether what is found in the files depends on it, though no recipe holds it."""


def _about(help: str, **more: Any) -> dict[str, About]:
    """Return the metadata of a field."""
    return {"about": About(help, **more)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """How one file is opened and scanned; travels to workers."""

    group: str | None = field(default=None, metadata=_about("Scan only this group", flags=("--group",), is_saved=True))
    variables: tuple[str, ...] | None = field(
        default=None,
        metadata=_about("Scan only this variable", flags=("--variable", "-V"), repeats=True, is_saved=True),
    )
    tree: bool = field(
        default=False,
        metadata=_about(
            "Combine every group of the files, each by itself: the result is a tree", flags=("--tree",), is_saved=True
        ),
    )
    format: str | None = field(
        default=None, metadata=_about("The format of a file by name; else its first bytes decide", is_saved=True)
    )
    errors: str = field(
        default="raise",
        metadata=_about(
            "What to do with files and variables that cannot be read: raise, warn (leave out with a warning) or skip "
            "(leave out silently)",
            flags=("--errors",),
        ),
    )
    verify: Verify = field(
        default="read",
        metadata=_about("When sources are checked for changes since the scan: read, open, never", changes_scan=True),
    )
    allow_local: bool = field(
        default=False,
        metadata=_about("Whether references from elsewhere may name files of this machine", changes_scan=True),
    )
    storage_options: Mapping[str, Any] | None = field(
        default=None,
        repr=False,
        metadata=_about(
            "Credentials and endpoints of storage",
            flags=("--option", "-O"),
            flag_help="Storage option, e.g. anon=true, endpoint_url=…, key=…, secret=…, region=…; may be repeated.",
            repeats=True,
        ),
    )

    def __post_init__(self) -> None:
        if self.group is not None and not isinstance(self.group, str):
            raise ValueError(f"group must be a string or None, not {self.group!r}")
        if self.errors not in ("raise", "warn", "skip"):
            raise ValueError(f'errors must be "raise", "warn" or "skip", not {self.errors!r}')
        if self.variables is not None:
            names = (self.variables,) if isinstance(self.variables, str) else tuple(self.variables)
            object.__setattr__(self, "variables", names)
        if self.tree and self.variables is not None:
            raise ValueError("a tree is combined with all its variables: leave variables out, or give drop_variables")

    @property
    def skips_failures(self) -> bool:
        """Whether bad files and variables are left out."""
        return self.errors != "raise"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeOptions:
    """What is decoded: xarray's keywords. Those of single variables may be a mapping by name."""

    mask_and_scale: PerVariable = field(
        default=True, metadata=_about("Whether scale, offset and missing values are applied", is_saved=True)
    )
    decode_times: PerVariable = field(default=True, metadata=_about("Whether times become dates", is_saved=True))
    decode_timedelta: PerVariable = field(
        default=None, metadata=_about("Whether durations become timedeltas", is_saved=True)
    )
    use_cftime: PerVariable = field(default=None, metadata=_about("Whether dates are objects of cftime", is_saved=True))
    concat_characters: PerVariable = field(
        default=True, metadata=_about("Whether characters are joined to texts", is_saved=True)
    )
    decode_coords: bool | str = field(
        default=True, metadata=_about("Whether attributes name coordinates; all: also bounds", is_saved=True)
    )
    drop_variables: frozenset[str] = field(
        default=frozenset(),
        metadata=_about("Leave out this variable", flags=("--drop-variables",), repeats=True, is_saved=True),
    )

    @classmethod
    def of(
        cls, decode_cf: bool | None = None, drop_variables: str | Iterable[str] | None = None, **given: Any
    ) -> DecodeOptions:
        """Return the options from keywords; None means the default."""
        chosen = {name: value for name, value in given.items() if value is not None}
        if decode_cf is False:
            off = ("mask_and_scale", "decode_times", "decode_timedelta", "concat_characters", "decode_coords")
            chosen = {**dict.fromkeys(off, False), **chosen}
        dropped = [drop_variables] if isinstance(drop_variables, str) else drop_variables or []
        return cls(**chosen, drop_variables=frozenset(dropped))

    def of_variable(self, name: str) -> dict[str, Any]:
        """Return the keywords for one variable."""
        return {
            "mask_and_scale": _option_of(self.mask_and_scale, name, True),
            "decode_times": _option_of(self.decode_times, name, True),
            "decode_timedelta": _option_of(self.decode_timedelta, name, None),
            "use_cftime": _option_of(self.use_cftime, name, None),
            "concat_characters": _option_of(self.concat_characters, name, True),
        }


def _option_of(option: PerVariable, name: str, default: Any) -> Any:
    if option is True or option is None:  # of most variables; the test for a mapping is slow
        return option
    return option.get(name, default) if isinstance(option, Mapping) else option


OVERLAPS = (None, "error", "first", "last", "newest")


def _plain_spacing(expect: Any) -> Any:
    """Return the option `expect` as text and plain numbers, which can be saved."""
    if isinstance(expect, Mapping):
        return {str(dim): _plain_spacing(spacing) for dim, spacing in expect.items()} or None
    if hasattr(expect, "freqstr"):  # an offset of pandas
        return str(expect.freqstr)
    if hasattr(expect, "item"):
        expect = expect.item()
    if expect is None or (isinstance(expect, (str, int, float)) and not isinstance(expect, bool)):
        return expect
    raise ValueError(f"expect must be an offset, a number, or a mapping of dimensions to these, not {expect!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineOptions:
    """How files are combined: xarray's keywords."""

    combine: str = field(
        default="by_coords", metadata=_about("by_coords: files are ordered by labels; nested: as listed", is_saved=True)
    )
    concat_dim: Any = field(
        default=None,
        metadata=_about(
            "The dimension along which nested lists are joined, one for each level; a mapping: new dimensions, with "
            "the labels of each from the files' names (a pattern), attributes (attr:NAME) or single values (var:NAME)",
            flags=("--concat-dim",),
            flag_help="Join the files along this dimension, in the order given; NAME=REGEX takes the labels of a new "
            "dimension from their names, NAME=attr:ATTRIBUTE and NAME=var:VARIABLE from an attribute or a single value "
            "of each file; may be repeated for further ones.",
            repeats=True,
            is_saved=True,
        ),
    )
    forecasts: bool | Mapping[str, str] = field(
        default=False,
        metadata=_about(
            "Files are forecasts: joined along reference time, lead time and member (time, step, number, or the names "
            "that a mapping gives); concat_dim says where files say so, if nothing usual does",
            flags=("--forecasts",),
            flag_help="Join files as forecasts, along reference time (time), lead time (step) and member (number). "
            "Where files do not say these in a usual way: --concat-dim time=REGEX, step=attr:ATTRIBUTE, and so on.",
            is_saved=True,
        ),
    )
    data_vars: str | Sequence[str] | None = field(
        default=DEFAULT, metadata=_about("As in xarray: minimal, different, all", flags=("--data-vars",), is_saved=True)
    )
    coords: str | Sequence[str] = field(
        default=DEFAULT, metadata=_about("As in xarray: minimal, different, all", flags=("--coords",), is_saved=True)
    )
    compat: str = field(
        default=DEFAULT,
        metadata=_about(
            "As in xarray: no_conflicts, equals, identical, override, minimal, broadcast_equals",
            flags=("--compat",),
            is_saved=True,
        ),
    )
    join: str = field(
        default=DEFAULT,
        metadata=_about("As in xarray: outer, inner, left, right, exact, override", flags=("--join",), is_saved=True),
    )
    combine_attrs: str | Callable[..., dict[str, Any]] = field(
        default="override",
        metadata=_about("As in xarray: override, drop, drop_conflicts, no_conflicts, identical", is_saved=True),
    )
    overlap: Literal["error", "first", "last", "newest"] | None = field(
        default=None,
        metadata=_about(
            "Of labels that several files have, the file that gives them: first, last (in the order given), newest (by "
            "a date in their attributes, else their time); error: none may",
            flags=("--overlap",),
            is_saved=True,
        ),
    )
    expect: Any = field(
        default=None,
        metadata=_about(
            "The spacing of labels, an offset of pandas (1D) or a number; DIM=SPACING for one of several dimensions. "
            "Those that no file has are absent",
            flags=("--expect",),
            is_saved=True,
            repeats=True,
        ),
    )
    by_group: Mapping[str, Mapping[str, Any]] | None = field(
        default=None,
        metadata=_about(
            "Of a tree: other options of combining for the groups of a path or pattern",
            flags=("--by-group",),
            flag_help="With --tree: another option of combining for some groups, as PATTERN:NAME=VALUE, e.g. "
            "'sweep_*:concat_dim=time'; concat_dim=none merges. May be repeated.",
            repeats=True,
            is_saved=True,
        ),
    )
    pad: bool = field(
        default=False,
        metadata=_about(
            "Pad files with missing values to the longest along dimensions that they are not joined along",
            flags=("--pad",),
            is_saved=True,
        ),
    )

    def __post_init__(self) -> None:
        if self.combine not in ("by_coords", "nested"):
            raise ValueError(f"{self.combine!r} is an invalid option for the keyword argument combine")
        if self.forecasts:
            self._choose_rules_of_forecasts()
        if self.overlap not in OVERLAPS:
            raise ValueError(f'overlap must be "error", "first", "last", "newest" or None, not {self.overlap!r}')
        object.__setattr__(self, "expect", _plain_spacing(self.expect))
        if not isinstance(self.pad, bool):
            raise ValueError(f"pad must be True or False, not {self.pad!r}")
        known = [item.name for item in fields(CombineOptions) if item.name != "by_group"]
        for pattern, given in (self.by_group or {}).items():
            if not isinstance(given, Mapping):
                raise TypeError(f"by_group={{{pattern!r}: …}} must be a mapping of options, not {given!r}")
            for name in given:
                if name not in known:
                    raise _unknown_keyword_error(name, known)
            replace(self, by_group=None, **given)

    def _choose_rules_of_forecasts(self) -> None:
        """Check the options of forecasts, and choose xarray's: what has no axis of them is taken from one file."""
        if isinstance(self.forecasts, Mapping) and (unknown := set(self.forecasts) - {"time", "step", "number"}):
            raise ValueError(f"forecasts names the axes time, step and number, not {', '.join(sorted(unknown))}")
        if self.combine != "by_coords" or not isinstance(self.concat_dim, Mapping | None):
            raise ValueError(
                "forecasts are joined by their labels: combine= and a list of dimensions do not go with it"
            )
        usual = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "outer"}
        for name, value in usual.items():
            if getattr(self, name) is DEFAULT:
                object.__setattr__(self, name, value)

    @property
    def places_labels(self) -> bool:
        """Whether the place of each label is decided by itself, not by the file that has it."""
        return self.overlap is not None or self.expect is not None

    @property
    def is_grid(self) -> bool:
        """Whether files were given in lists within lists."""
        return self.combine == "nested" and isinstance(self.concat_dim, (list, tuple)) and len(self.concat_dim) > 1

    @property
    def may_shadow(self) -> bool:
        """Whether files may give nothing, as others give all that they have: in a tree, of some group."""
        given = [self.overlap, *(own.get("overlap") for own in (self.by_group or {}).values())]
        return any(rule not in (None, "error") for rule in given)

    @property
    def drops_conflicts(self) -> bool:
        """Whether attributes are left out in which files differ: the result does not say which, so all files do."""
        return self.combine_attrs == "drop_conflicts"

    @property
    def merges_attributes(self) -> bool:
        """Whether the attributes of the result follow from those of all files, not of the first one."""
        return self.combine_attrs in ("drop_conflicts", "no_conflicts")

    def of_group(self, path: str) -> CombineOptions:
        """Return the options for one group of a tree.

        Of several patterns of `by_group` that a path follows, the later ones count more.
        """
        given = {
            name: value
            for pattern, options in (self.by_group or {}).items()
            if follows_pattern(path, pattern)
            for name, value in options.items()
        }
        if not self.by_group:
            return self
        own = replace(self, by_group=None, **given)
        if own.combine == "nested" and own.concat_dim is None:  # merged: no label is taken from one of several files
            own = replace(own, overlap=None, expect=None)
        return own


def follows_pattern(path: str, pattern: str) -> bool:
    """Return whether the path of a group follows a pattern: `*` stands for any name or part of one,
    `**` at the end for the group before it and all groups below.

    Examples
    --------
    >>> follows_pattern("sweep_3", "/sweep_*"), follows_pattern("sweep_3/how", "/sweep_*")
    (True, False)
    >>> follows_pattern("", "/"), follows_pattern("a/b/c", "a/**")
    (True, True)
    """
    names, wanted = ([name for name in text.split("/") if name] for text in (path, pattern))
    if wanted[-1:] == ["**"]:
        wanted = wanted[:-1]
        names = names[: len(wanted)]
    return len(names) == len(wanted) and all(map(fnmatchcase, names, wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Where many files are scanned, and what is shown and kept meanwhile."""

    parallel: Any = field(
        default=None, metadata=_about("Where files are scanned: a number of threads, an executor, Dask")
    )
    progress: Any = field(
        default=None, metadata=_about("Whether progress is shown, or a function that is called with it")
    )
    resume: Any = field(default=None, metadata=_about("Whether what was scanned is kept until all files are"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How values are read and reduced."""

    cache: Any = field(
        default=None, metadata=_about("What keeps values or decoded chunks for later reads, or how many bytes")
    )
    active: Any = field(default=None, metadata=_about("The servers next to the data that reduce it"))
    active_required: bool = field(default=False, metadata=_about("Whether it is an error if these servers cannot"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowOptions:
    """How an archive becomes a dataset."""

    chunks: Any = field(default=None, metadata=_about("Dask arrays instead of virtual ones, in blocks like these"))
    inline_array: bool = field(default=False, metadata=_about("As in xarray: whether each Dask task holds its array"))
    create_default_indexes: bool = field(default=True, metadata=_about("Whether labels of dimensions become indexes"))
    attrs_file: Any = field(default=None, metadata=_about("The file whose attributes the dataset gets"))
    preprocess: Callable[..., Any] | None = field(default=None, metadata=_about("Called with the dataset of each file"))
    auto_complex: bool = field(
        default=False,
        metadata=_about(
            "As in xarray; complex numbers stored as pairs are always shown, those along a dimension never"
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """All options of opening. Create it with `of` or `of_call`."""

    scan: ScanOptions = field(default=ScanOptions())
    decode: DecodeOptions = field(default=DecodeOptions())
    combine: CombineOptions = field(default=CombineOptions())
    run: RunOptions = field(default=RunOptions())
    read: ReadOptions = field(default=ReadOptions())
    show: ShowOptions = field(default=ShowOptions())

    @classmethod
    def of(cls, **given: Any) -> OpenOptions:
        """Return the options from keywords.

        Raises
        ------
        TypeError
            If there is no option of a name.
        ValueError
            If an option has no such value.
        """
        groups: dict[str, dict[str, Any]] = {}
        for name, value in given.items():
            if name not in _GROUP_OF:
                raise _unknown_keyword_error(name, _GROUP_OF)
            group = _GROUP_OF[name]
            # A group with nothing but defaults is not made anew: that takes 15 µs, if all are. Of decoding a default
            # that is given counts: decode_cf=False switches the others off, mask_and_scale=True on again.
            if group == "decode" or value is not _USUAL[name]:
                groups.setdefault(group, {})[name] = value
        made: dict[str, Any] = {
            name: (DecodeOptions.of if name == "decode" else _GROUPS[name])(**chosen) for name, chosen in groups.items()
        }
        return cls(**made)

    @classmethod
    def of_call(cls, parameters: Mapping[str, Any], others: Mapping[str, Any]) -> OpenOptions:
        """Return the options of a call.

        Parameters
        ----------
        parameters
            The function's own parameters and their values, its `locals()`. What is no option
            (files, say) is left out.
        others
            Its further keywords: of decoding and combining, say. Options of datasets must be among
            the function's own: else it makes none.
        """
        taken = [name for name in _GROUP_OF if _GROUP_OF[name] != "show" or name in parameters]
        for name in others:
            if name not in taken:
                raise _unknown_keyword_error(name, taken)
        return cls.of(**{name: value for name, value in parameters.items() if name in OPTIONS}, **others)

    def replace(self, **changes: Any) -> OpenOptions:
        """Return the options with other values of some, by name."""
        groups: dict[str, dict[str, Any]] = {}
        for name, value in changes.items():
            groups.setdefault(_GROUP_OF[name], {})[name] = value
        return replace(self, **{name: replace(getattr(self, name), **chosen) for name, chosen in groups.items()})

    def values(self) -> dict[str, Any]:
        """Return the value of each option by name."""
        return {name: getattr(getattr(self, _GROUP_OF[name]), name) for name in OPTIONS}

    def to_recipe(self) -> dict[str, Any]:
        """Return what a saved recipe holds, as plain values; keywords of decoding are one of them.

        Values that cannot be written as text (functions, arrays) are named in `unknown`.
        """
        usual = DecodeOptions()
        document: dict[str, Any] = {}
        decoding: dict[str, Any] = {}
        for name, value in self.values().items():
            if _GROUP_OF[name] == "decode":
                if value != getattr(usual, name):
                    decoding[name] = sorted(value) if isinstance(value, frozenset) else value
            elif OPTIONS[name].is_saved and not _goes_without_saying(value):
                document[name] = value
        lost = [name for name, value in {**document, **decoding}.items() if not _is_plain(value)]
        document = {name: value for name, value in document.items() if name not in lost}
        if decoding and not any(name in lost for name in decoding):
            document["decoding"] = decoding
        if lost:
            names = ", ".join(f"{name}=" for name in lost)
            document["unknown"] = f"it was opened with {names}, whose value cannot be saved"
        return document

    @classmethod
    def from_recipe(cls, document: Mapping[str, Any]) -> OpenOptions:
        """Return the options that were saved; keywords of newer versions are left out.

        Raises
        ------
        TypeError
            If a keyword of decoding is of a newer version: values would be other ones without it.
        """
        saved = {name: document[name] for name in document if name in OPTIONS and OPTIONS[name].is_saved}
        return cls.of(**saved, **document.get("decoding", {}))

    def scan_key(self) -> dict[str, Any] | None:
        """Return what identifies what the files make together, for caches and journals.

        None: options hold functions, which nothing identifies. Credentials are never part of it.
        """
        document = self.to_recipe()
        if "unknown" in document:
            return None
        return {**document, **{name: value for name, value in self.values().items() if OPTIONS[name].changes_scan}}


_GROUPS: Mapping[str, Any] = {
    "scan": ScanOptions,
    "decode": DecodeOptions,
    "combine": CombineOptions,
    "run": RunOptions,
    "read": ReadOptions,
    "show": ShowOptions,
}
OPTIONS: Mapping[str, About] = {
    item.name: item.metadata["about"] for group in _GROUPS.values() for item in fields(group)
}
"""Every option by name."""
_GROUP_OF: Mapping[str, str] = {item.name: name for name, group in _GROUPS.items() for item in fields(group)} | {
    "decode_cf": "decode"  # short for several
}

_USUAL = OpenOptions().values()


def _unknown_keyword_error(name: str, known: Collection[str]) -> TypeError:
    near = get_close_matches(name, sorted(known), 1)
    return TypeError(f"unexpected keyword argument {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))


def _goes_without_saying(value: Any) -> bool:
    return value is None or value is False or value is DEFAULT or (isinstance(value, (tuple, Mapping)) and not value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (str, bool, int, float))
