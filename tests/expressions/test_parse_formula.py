"""The grammar of formulas: what Python makes of the same text, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from insitu.errors import ModelError
from insitu.expressions.parse_formula import FORMULA_FUNCTIONS, Name, Number, names_of, parse_formula
from insitu.model.elementwise import OPERATIONS


def test_names_in_their_order_with_their_places() -> None:
    formula = parse_formula("b + sqrt(a) * b - `group/c d`")
    assert names_of(formula) == {"b": 0, "a": 9, "group/c d": 19}


def test_a_name_in_backticks_and_one_of_other_letters() -> None:
    assert parse_formula("`2 m/temp`") == Name("2 m/temp", 1)
    assert parse_formula(" größe ") == Name("größe", 1)


def test_numbers() -> None:
    assert [parse_formula(text) for text in ("2", ".5", "1e3", "-2", "+7")] == [
        Number(2), Number(0.5), Number(1000.0), Number(-2), Number(7)
    ]  # fmt: skip


def test_every_function_is_one_of_the_table() -> None:
    others = {"abs", "min", "max", "isnull", "fillna"}
    assert set(FORMULA_FUNCTIONS) - others <= set(OPERATIONS)
    for name, (least, _) in FORMULA_FUNCTIONS.items():
        parse_formula(f"{name}({', '.join(['x'] * least)})")
        with pytest.raises(ModelError, match=f"{name} takes"):
            parse_formula(f"{name}({', '.join(['x'] * 9)})")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at character 1: it ends where"),
        ("a +", "at character 4: it ends where"),
        ("a b", "at character 3: 'b' is not expected"),
        ("(a", "at character 1: a closing parenthesis is missing"),
        ("a)", "at character 2: '\\)' is not expected"),
        ("a ^ 2", "at character 3: .* Powers are written \\*\\*"),
        ("a > 1 & a > 2 > 1", "a comparison of a comparison"),
        ("a.values", "Methods are written as functions"),
        ("a[0]", "Positions are selected outside of the formula"),
        ("a = 1", "Equality is written =="),
        ("__import__('os')", "at character 12|no function '__import__'"),
        ("eval(a)", "no function 'eval'"),
        ("lambda: 1", "':' is not part"),
        ("1e999", "too large"),
        ("9" * 30, "too large"),
        ("a" * 3000, "3000 characters; 2000 are allowed"),
        ("(" * 60 + "a" + ")" * 60, "nested more than 40 deep"),
        ("-" * 60 + "a", "nested more than 40 deep"),
        ("a**" * 60 + "a", "nested more than 40 deep"),
        ("a+" * 150 + "a", "more than 200"),
    ],
)
def test_what_is_no_formula(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parse_formula(text)


def test_random_text_is_a_formula_or_a_clear_error() -> None:
    random = np.random.default_rng(3)
    pieces = ["a", "b", "1", "2.5", "(", ")", "+", "-", "*", "**", "/", "<", "&", ",", "sqrt", "where(", " ", "`", "\0"]
    parsed = 0
    for _ in range(2000):
        text = "".join(random.choice(pieces, random.integers(1, 8)))
        try:
            parse_formula(text)
        except ModelError:
            continue
        parsed += 1
    assert parsed > 100
