"""Templates of kerchunk JSON: a safe subset of Jinja.

kerchunk writes Jinja: `{{u}}`, `{{f(c='x')}}`, and arithmetic in `gen` (`{{(i + 1) * 1000}}`).
Supported are names, numbers, texts, arithmetic, formatting, and calls of other templates. No code
is executed; anything else is an error.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from insitu.errors import FormatError

__all__ = ["Templates", "generate_references"]

_BRACES = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_LONGEST_TEMPLATE = 500
_LARGEST_NUMBER = 2**63
_MOST_REFERENCES = 10_000_000
_DEEPEST_NESTING = 8
Value = int | float | str


class Templates:
    """The templates of one reference set."""

    def __init__(self, texts: Mapping[str, Any] | None = None) -> None:
        self._texts: dict[str, str] = {}
        for name, text in (texts or {}).items():
            if not isinstance(text, str):
                raise FormatError(f"template {name!r} must be text", structure=f"templates/{name}")
            self._texts[name] = text
        self._known: dict[str, str] = {}

    def render(self, text: str, values: Mapping[str, Value] | None = None) -> str:
        """Return a text with its templates filled in.

        Examples
        --------
        >>> Templates({"u": "s3://b/{{c}}.nc"}).render("{{u(c='x')}}#{{ '%02d' % i }}", {"i": 3})
        's3://b/x.nc#03'
        """
        if "{{" not in text:
            return text
        if values is None and text in self._known:
            return self._known[text]
        try:
            rendered = self._fill_in(text, values or {}, 0)
        except RecursionError:
            raise FormatError(f"the template {text[:40]!r}... is nested too deeply") from None
        if values is None:
            self._known[text] = rendered
        return rendered

    def _fill_in(self, text: str, values: Mapping[str, Value], depth: int) -> str:
        if depth > _DEEPEST_NESTING:
            raise FormatError(
                f"templates are nested more than {_DEEPEST_NESTING} levels deep, or refer to each other in a circle"
            )
        filled = _BRACES.sub(lambda found: str(self._value(found[1].strip(), values, depth)), text)
        if len(filled) > 1 << 16:
            raise FormatError("a template expands to more than 65536 characters")
        return filled

    def _value(self, text: str, values: Mapping[str, Value], depth: int) -> Value:
        if len(text) > _LONGEST_TEMPLATE:
            raise FormatError(f"the template {text[:40]!r}... has more than {_LONGEST_TEMPLATE} characters")
        try:
            parsed = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise FormatError(f"the template {{{{{text}}}}} is not supported") from None
        return self._node(parsed, values, depth, text)

    def _node(self, node: ast.expr, values: Mapping[str, Value], depth: int, text: str) -> Value:
        match node:
            case ast.Constant(value=str() | int() | float() as value) if not isinstance(value, bool):
                return value
            case ast.Name(id=name):
                if name in values:
                    return values[name]
                if name in self._texts:
                    return self._fill_in(self._texts[name], {}, depth + 1)
                raise FormatError(f"the template uses {name!r}, which is not defined")
            case ast.Call(func=ast.Name(id=name), args=[], keywords=keywords) if name in self._texts:
                arguments = {k.arg: self._node(k.value, values, depth, text) for k in keywords if k.arg is not None}
                return self._fill_in(self._texts[name], arguments, depth + 1)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return _require_range(-_require_number(self._node(inner, values, depth, text), text), text)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._filter(self._node(left, values, depth, text), right, values, depth, text)
            case ast.BinOp(left=left, op=op, right=right):
                return _compute(self._node(left, values, depth, text), op, self._node(right, values, depth, text), text)
        raise FormatError(f"the template {{{{{text}}}}} is not supported")

    def _filter(self, value: Value, node: ast.expr, values: Mapping[str, Value], depth: int, text: str) -> Value:
        """Apply a filter of Jinja, `value | filter`: `int`, `string` and `format`."""
        match node:
            case ast.Name(id="int"):
                try:
                    return int(float(value)) if isinstance(value, str) else int(value)
                except (ValueError, OverflowError):  # not a number; NaN or infinite
                    raise FormatError(f"the template {{{{{text}}}}} makes an integer of {value!r}") from None
            case ast.Name(id="string"):
                return str(value)
            case ast.Call(func=ast.Name(id="format"), args=arguments) if isinstance(value, str):
                operands = tuple(self._node(argument, values, depth, text) for argument in arguments)
                return _format(value, operands, text)
        raise FormatError(f"the template {{{{{text}}}}} is not supported")


def _require_number(value: Value, text: str) -> int | float:
    if isinstance(value, str):
        raise FormatError(f"the template {{{{{text}}}}} calculates with text")
    return value


def _require_range(value: int | float, text: str) -> int | float:
    if abs(value) >= _LARGEST_NUMBER:
        raise FormatError(f"the template {{{{{text}}}}} gives a number beyond 2**63")
    return value


def _format(pattern: str, values: tuple[Value, ...], text: str) -> str:
    if re.search(r"%[^%]*(\*|\d{4,})", pattern):  # a width from the data could ask for gigabytes
        raise FormatError(f"the template {{{{{text}}}}} is not supported")
    try:
        return pattern % values
    except (TypeError, ValueError, OverflowError):  # what Python's formatting of values raises
        raise FormatError(f"the template {{{{{text}}}}} has a format that does not match its values") from None


def _compute(left: Value, op: ast.operator, right: Value, text: str) -> Value:
    if isinstance(left, str):
        if isinstance(op, ast.Mod):
            return _format(left, (right,), text)
        if isinstance(op, ast.Add) and isinstance(right, str):
            return left + right
    one, other = _require_number(left, text), _require_number(right, text)
    try:
        match op:
            case ast.Add():
                return _require_range(one + other, text)
            case ast.Sub():
                return _require_range(one - other, text)
            case ast.Mult():
                return _require_range(one * other, text)
            case ast.FloorDiv():
                return _require_range(one // other, text)
            case ast.Mod():
                return _require_range(one % other, text)
            case ast.Div():
                return _require_range(one / other, text)
    except (ZeroDivisionError, OverflowError):
        raise FormatError(f"the template {{{{{text}}}}} divides by zero or overflows") from None
    raise FormatError(f"the template {{{{{text}}}}} is not supported")


def generate_references(items: Any, templates: Templates) -> Iterator[tuple[str, list[Any]]]:
    """Yield the references that the items of `gen` generate."""
    if not isinstance(items, list):
        raise FormatError("'gen' must be a list", structure="gen")
    for number, item in enumerate(items):
        if (
            not isinstance(item, Mapping)
            or not isinstance(item.get("key"), str)
            or not isinstance(item.get("url"), str)
        ):
            raise FormatError("an item of 'gen' needs a key and a URL", structure=f"gen[{number}]")
        dimensions = item.get("dimensions")
        if not isinstance(dimensions, Mapping):
            raise FormatError("an item of 'gen' needs dimensions", structure=f"gen[{number}]")
        ranges = {str(name): _parse_range(value, f"gen[{number}]") for name, value in dimensions.items()}
        total = 1
        for choices in ranges.values():
            total *= len(choices)
        if total > _MOST_REFERENCES:
            raise FormatError(
                f"an item of 'gen' generates {total} references; at most {_MOST_REFERENCES} are allowed",
                structure=f"gen[{number}]",
            )
        for combination in itertools.product(*ranges.values()):
            try:
                yield _make_reference(item, dict(zip(ranges, combination, strict=True)), templates)
            except FormatError as problem:
                raise problem.with_context(structure=f"gen[{number}]") from None


def _make_reference(item: Mapping[str, Any], values: Mapping[str, Any], templates: Templates) -> tuple[str, list[Any]]:
    """Return one generated reference."""
    key = templates.render(item["key"], values)
    reference: list[Any] = [templates.render(item["url"], values)]
    if "offset" in item and "length" in item:
        reference += [_parse_integer(templates.render(str(item[name]), values), key) for name in ("offset", "length")]
    return key, reference


def _parse_range(value: Any, location: str) -> range | list[Any]:
    if isinstance(value, list) and all(isinstance(entry, int | str) for entry in value):
        return value
    if isinstance(value, Mapping):
        bounds = [value.get("start", 0), value.get("stop"), value.get("step", 1)]
        if all(isinstance(bound, int) and abs(bound) < 2**62 for bound in bounds) and bounds[2]:
            return range(*bounds)
    raise FormatError(
        f"a dimension of 'gen' must be a list or have start, stop and step, not {value!r}", structure=location
    )


def _parse_integer(text: str, key: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise FormatError(f"offset and length must be integers, not {text!r}", structure=key) from None
