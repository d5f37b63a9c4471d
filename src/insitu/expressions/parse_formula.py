"""Parser of formulas that people type: `tas - 273.15`, `sqrt(u**2 + v**2)`, `where(lsm > 0.5, tas, nan)`.

A formula consists of names, numbers, operators and functions of a fixed table, with the precedence of Python. It
is parsed by hand into frozen nodes, never run as code, and bounded in length, depth and parts. `build_formula` makes
an expression of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from insitu.errors import ModelError
from insitu.model.elementwise import ARGUMENT_COUNTS

__all__ = ["FORMULA_FUNCTIONS", "Call", "Formula", "Name", "Number", "names_of", "parse_formula"]

MAX_CHARS = 2000
"""Longest formula."""
MAX_DEPTH = 40
"""How deep parentheses, signs and functions may lie in each other."""
MAX_PARTS = 200
"""Names, numbers, operators and functions of a formula."""
MAX_INTEGER = 2**63 - 1

_NOT_OFFERED = frozenset(
    {"left_shift", "right_shift", "conjugate", "is_in", "real", "imag", "isnat"}
    | {"logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "invert"}
    | {"add", "subtract", "multiply", "true_divide", "floor_divide", "remainder", "negative", "positive", "isnan"}
    | {"greater", "greater_equal", "less", "less_equal", "equal", "not_equal"}
)
"""Operations that have a symbol, or that no picture is made of."""
_OTHER_NAMES = {"abs": "absolute", "min": "minimum", "max": "maximum"}

FORMULA_FUNCTIONS: dict[str, tuple[int, int]] = {
    **{name: (count, count) for name, count in ARGUMENT_COUNTS.items() if name not in _NOT_OFFERED},
    **{name: (ARGUMENT_COUNTS[of], ARGUMENT_COUNTS[of]) for name, of in _OTHER_NAMES.items()},
    "isnull": (1, 1),
    "fillna": (2, 2),
    "round": (1, 2),
}
"""Functions that a formula may call: the fewest and the most arguments."""


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a variable."""

    text: str
    at: int
    """Where it stands in the formula."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number."""

    value: int | float


@dataclass(frozen=True, slots=True)
class Call:
    """An operation: its name in `insitu.model.elementwise`, `isnull` or `fillna`, and what it is done to."""

    function: str
    arguments: tuple[Formula, ...]
    at: int


Formula = Name | Number | Call

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|`(?P<quoted>[^`]+)`"
    r"|(?P<symbol>\*\*|//|<=|>=|==|!=|[-+*/%<>&|~(),]))"
)
_COMPARISONS = {
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "==": "equal",
    "!=": "not_equal",
}
_LEVELS: tuple[dict[str, str], ...] = (
    {"|": "bitwise_or"},
    {"&": "bitwise_and"},
    {"+": "add", "-": "subtract"},
    {"*": "multiply", "/": "true_divide", "//": "floor_divide", "%": "remainder"},
)
"""Operators of two operands from the loosest to the tightest; comparisons are looser than all of them."""
_SIGNS = {"-": "negative", "+": "positive", "~": "invert"}
_ADVICE = {
    "^": "Powers are written **",
    "=": "Equality is written ==",
    "!": "Negation is written ~",
    "[": "Positions are selected outside of the formula: (tas - 273.15)[0], or with the sliders of the explorer",
    ".": "Methods are written as functions: sqrt(x), not x.sqrt()",
    '"': "A name with other characters stands in `backticks`",
    "'": "A name with other characters stands in `backticks`",
}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    """`number`, `name`, `quoted`, `symbol` or `end`."""
    text: str
    at: int


def parse_formula(text: str) -> Formula:
    """Return the tree of a formula.

    Raises
    ------
    ModelError
        If it is no formula, or too long or too deep; the message says where.

    Examples
    --------
    >>> parse_formula("tas - 273.15")
    Call(function='subtract', arguments=(Name(text='tas', at=0), Number(value=273.15)), at=4)
    """
    if len(text) > MAX_CHARS:
        raise ModelError(f"the formula has {len(text)} characters; {MAX_CHARS} are allowed")
    return _Parser(text).parse()


def names_of(formula: Formula) -> dict[str, int]:
    """Return the names in a formula, in the order in which they come, each with its first place."""
    if isinstance(formula, Name):
        return {formula.text: formula.at}
    found: dict[str, int] = {}
    for part in formula.arguments if isinstance(formula, Call) else ():
        for name, at in names_of(part).items():
            found.setdefault(name, at)
    return found


class _Parser:
    """Recursive descent over the tokens of one formula."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._split()
        self.position = self.depth = self.parts = 0

    def parse(self) -> Formula:
        found = self._comparison()
        if self._next.kind != "end":
            self._fail(f"{self._next.text!r} is not expected", self._next.at)
        return found

    def _split(self) -> list[_Token]:
        tokens, at, end = [], 0, len(self.text.rstrip())
        while at < end:
            match = _TOKEN.match(self.text, at)
            if match is None:
                start = at + len(self.text[at:]) - len(self.text[at:].lstrip())
                character = self.text[start]
                self._fail(f"{character!r} is not part of a formula", start, _ADVICE.get(character))
            kind = str(match.lastgroup)
            tokens.append(_Token(kind, match[kind], match.start(kind)))
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    @property
    def _next(self) -> _Token:
        return self.tokens[self.position]

    def _take(self, *symbols: str) -> _Token | None:
        """Return the next token and go on, if it is one of some symbols."""
        token = self._next
        if token.kind != "symbol" or token.text not in symbols:
            return None
        self.position += 1
        return token

    def _comparison(self) -> Formula:
        left = self._binary(0)
        token = self._take(*_COMPARISONS)
        if token is None:
            return left
        made = self._count(Call(_COMPARISONS[token.text], (left, self._binary(0)), token.at))
        again = self._take(*_COMPARISONS)
        if again is not None:
            self._fail(
                "a comparison of a comparison",
                again.at,
                "Put each in parentheses and join them by &: (a > 1) & (a < 2)",
            )
        return made

    def _binary(self, level: int) -> Formula:
        if level == len(_LEVELS):
            return self._sign()
        left = self._binary(level + 1)
        while (token := self._take(*_LEVELS[level])) is not None:
            left = self._count(Call(_LEVELS[level][token.text], (left, self._binary(level + 1)), token.at))
        return left

    def _sign(self) -> Formula:
        token = self._take(*_SIGNS)
        if token is None:
            return self._power()
        self._enter(token.at)
        of = self._sign()
        self.depth -= 1
        if isinstance(of, Number) and token.text != "~":
            return Number(-of.value if token.text == "-" else of.value)
        return self._count(Call(_SIGNS[token.text], (of,), token.at))

    def _power(self) -> Formula:
        base = self._value()
        token = self._take("**")
        if token is None:
            return base
        self._enter(token.at)
        exponent = self._sign()  # -2 and what is raised itself bind to the right, as in Python
        self.depth -= 1
        return self._count(Call("power", (base, exponent), token.at))

    def _value(self) -> Formula:
        token = self._next
        self.position += token.kind != "end"
        if token.kind == "number":
            return self._count(Number(self._number(token)))
        if token.kind == "name" and self._take("("):
            return self._call(token)
        if token.kind in ("name", "quoted"):
            return self._count(Name(token.text, token.at))
        if token.text == "(":
            self._enter(token.at)
            found = self._comparison()
            self._close(token.at)
            return found
        what = f"{token.text!r} stands" if token.kind == "symbol" else "it ends"
        return self._fail(f"{what} where a name or a number is expected", token.at)

    def _number(self, token: _Token) -> int | float:
        number = int(token.text) if token.text.isdecimal() and token.text.isascii() else float(token.text)
        if number in (float("inf"), float("-inf")) or (isinstance(number, int) and number > MAX_INTEGER):
            self._fail(f"the number {token.text[:40]} is too large", token.at)
        return number

    def _call(self, token: _Token) -> Formula:
        name = token.text
        if name not in FORMULA_FUNCTIONS:
            self._fail(f"there is no function {name[:40]!r}", token.at, f"There are: {', '.join(FORMULA_FUNCTIONS)}")
        self._enter(token.at)
        arguments = [self._comparison()]
        while self._take(","):
            arguments.append(self._comparison())
        self._close(token.at)
        least, most = FORMULA_FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            self._fail(f"{name} takes {wanted} arguments, not {len(arguments)}", token.at)
        return self._count(Call(_OTHER_NAMES.get(name, name), tuple(arguments), token.at))

    def _enter(self, at: int) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._fail(f"it is nested more than {MAX_DEPTH} deep", at)

    def _close(self, opened: int) -> None:
        self.depth -= 1
        if self._take(")") is None:
            self._fail("a closing parenthesis is missing for the one that opens here", opened)

    def _count(self, node: Formula) -> Formula:
        self.parts += 1
        if self.parts > MAX_PARTS:
            self._fail(f"it has more than {MAX_PARTS} names, numbers and operators", self._next.at)
        return node

    def _fail(self, what: str, at: int, hint: str | None = None) -> NoReturn:
        raise ModelError(f"the formula {self.text[:100]!r}, at character {at + 1}: {what}", hint=hint)
