"""Options of a command from the environment and from a TOML file, by the names in its signature.

An option `--max-request` of `insitu serve` is `INSITU_SERVE_MAX_REQUEST` in the environment and
`max_request` in the file. A flag comes before the environment, the environment before the file, and the
file before the default.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import typer

from insitu.errors import InsituError

__all__ = ["apply_option_file", "read_options_again", "refuse_empty_variables", "unknown_variables", "variable_name"]

TYPE_NAMES = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a text",
    list: "a list of texts",
    dict: "a table",
}


def variable_name(prefix: str, parameter: str) -> str:
    """Return the environment variable of a parameter.

    Examples
    --------
    >>> variable_name("INSITU_SERVE", "max_request")
    'INSITU_SERVE_MAX_REQUEST'
    """
    return f"{prefix}_{parameter.upper()}"


def apply_option_file(context: typer.Context, path: Path, command: Any, own: str) -> None:
    """Take the defaults of a command's options from a TOML file.

    Parameters
    ----------
    context
        Of the command that is about to run.
    path
        The file: keys are the names of options.
    command
        The function behind the command: its annotations are the types.
    own
        The option that names the file; the file cannot set it.
    """
    types = {name: kind for name, kind in _option_types(command) if name != own}
    parameters = {parameter.name: parameter for parameter in context.command.params}
    found = {}
    for key, value in _read_toml(path).items():
        if key not in types:
            similar = difflib.get_close_matches(key, types, 1)
            raise InsituError(
                f"{path}: there is no option {key!r}{f', perhaps {similar[0]!r} is meant' if similar else ''}",
                hint=f"Known keys: {', '.join(types)}",
            )
        if isinstance(value, dict) and types[key] is str:
            value = json.dumps(value)  # a table is the JSON that a flag takes
        if not _fits(value, types[key]):
            # The value is not shown: it may be a secret.
            type_name = TYPE_NAMES.get(type(value), "a table or a date")
            raise InsituError(f"{path}: {key} must be {TYPE_NAMES[types[key]]}, not {type_name}", hint=f"Change {key}")
        try:
            parameters[key].process_value(context, value)
        except typer.BadParameter as problem:  # outside of its range
            raise InsituError(f"{path}: {key} is wrong: {problem.message}", hint=f"Change {key}") from None
        found[key] = value
    context.default_map = found


def read_options_again(context: typer.Context) -> dict[str, Any]:
    """Return the options of a command that is running: flags as they were given, the others as the environment and
    the file of options give them now.
    """
    found: dict[str, Any] = {}
    # The option that names the file comes first: it is read then.
    for parameter in sorted(context.command.params, key=lambda one: not one.is_eager):
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name in context.params and source is not None and source.name == "COMMANDLINE":
            value: Any = context.params[name]
            if parameter.is_eager:
                parameter.process_value(context, value)
        elif name in context.params:
            value = parameter.process_value(context, parameter.consume_value(context, {})[0])
        else:
            continue  # --help
        found[name] = value
    return found


def refuse_empty_variables(values: Mapping[str, object]) -> None:
    """Raise an error if a variable of the environment is set to nothing, and so does not restrict access.

    Parameters
    ----------
    values
        What the options are, by the names of their variables.
    """
    for name, value in values.items():
        if not value and name in os.environ:
            raise InsituError(
                f"the environment variable {name} is empty: access would not be restricted",
                hint="Give it a value, or unset it",
            )


def unknown_variables(prefix: str, command: Any) -> list[str]:
    """Return the variables of the environment that look like options of a command and are none."""
    known = {variable_name(prefix, name) for name, _ in _option_types(command)}
    return sorted(name for name in os.environ if name.startswith(f"{prefix}_") and name not in known)


def _option_types(command: Any) -> Iterator[tuple[str, type]]:
    """Yield the name of each option and argument, and the type that a file gives it."""
    for name, kind in get_type_hints(command).items():
        if get_origin(kind) in (Union, UnionType):  # optional
            kind = next(part for part in get_args(kind) if part is not type(None))
        kind = get_origin(kind) or kind
        if kind is Path:
            kind = str
        if kind in TYPE_NAMES and name != "return":
            yield name, kind


def _fits(value: Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InsituError(
            f"cannot read the file of options {path}: {problem.strerror}", hint="Give the path of a TOML file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise InsituError(f"{path} is not a TOML file: {problem}", hint="Write lines such as port = 8080") from None
