"""kerchunk's templates are rendered, and no code is executed."""

from __future__ import annotations

import pytest

from insitu.errors import FormatError
from insitu.references.kerchunk.templates import Templates, generate_references

DEEP = {f"deep{level}": "{{ " + "-" * 480 + f"deep{level + 1}" + " }}" for level in range(7)} | {"deep7": "{{ 1 }}"}
"""Templates that are not too deep for themselves, but together."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{u}}", "s3://b/x.nc"), ("{{ u }}", "s3://b/x.nc"), ("{{f(c='a')}}", "a.nc"),
        ('{{f(c="a" + "b")}}', "ab.nc"), ("plain", "plain"), ("{{ 2 * (3 + 4) - 5 // 2 }}", "12"),
        ("{{ '%03d' % 7 }}", "007"), ("{{ '%02d-%d' | format(1, 2) }}", "01-2"), ("{{ 7 | string }}", "7"),
        ("a{{ 1 }}b{{ 2 }}", "a1b2"), ("{{ -3 }}", "-3"), ("{{g}}", "s3://b/x.nc#"),
    ],
)  # fmt: skip
def test_supported_templates(text: str, expected: str) -> None:
    assert Templates({"u": "s3://b/x.nc", "f": "{{c}}.nc", "g": "{{u}}#"}).render(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ __import__('os').system('true') }}", "{{ ().__class__ }}", "{{ u.upper() }}",
        "{{ [x for x in range(9)] }}", "{{ 9 ** 9 ** 9 }}", "{{ 'a' * 1000000000 }}", "{{ lambda: 1 }}",
        "{{ nothing }}", "{{ }}", "{{ 1 / 0 }}", "{{ u[0] }}", "{{ f'{u}' }}", "{{ open('x') }}", "{{ loop }}",
        "{{ " + "(" * 400 + " }}", "{{ 9223372036854775807 * 9223372036854775807 }}", "{{ '%999999999d' % 1 }}",
        "{{ '%*d' | format(9, 9) }}", "{{ " + "1+" * 400 + "1 }}", "{{ u | upper }}", "{{ 'abc' | int }}",
        "{{ 'inf' | int }}", "{{ '%c' % 99999999 }}", "{{ '%c' | format(99999999) }}", "{{ '%d' % u }}", "{{deep0}}",
    ],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(FormatError):
        Templates({"u": "x", "loop": "{{loop}}", **DEEP}).render(text)


def test_gen() -> None:
    items = [
        {"key": "x/{{i}}.{{j}}", "url": "{{u}}{{'%02d' % i}}", "offset": "{{(i + 1) * 1000 + j}}", "length": "10",
         "dimensions": {"i": {"stop": 2}, "j": [5, 7]}},
        {"key": "y/{{i}}", "url": "{{u}}", "dimensions": {"i": {"start": 3, "stop": 0, "step": -2}}},
    ]  # fmt: skip
    assert dict(generate_references(items, Templates({"u": "s3://b/"}))) == {
        "x/0.5": ["s3://b/00", 1005, 10], "x/0.7": ["s3://b/00", 1007, 10], "x/1.5": ["s3://b/01", 2005, 10],
        "x/1.7": ["s3://b/01", 2007, 10], "y/3": ["s3://b/"], "y/1": ["s3://b/"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "item",
    [
        7, {"key": "x", "url": "y"}, {"key": "x", "url": "y", "dimensions": {"i": {"stop": 10**12}}},
        {"key": "x", "url": "y", "dimensions": {"i": {"stop": 10**30}}},
        {"key": "x", "url": 3, "dimensions": {}}, {"key": "x", "url": "y", "dimensions": {"i": {"stop": "a"}}},
        {"key": "x", "url": "y", "dimensions": {"i": {"stop": 1, "step": 0}}},
        {"key": "x", "url": "y", "offset": "z", "length": "1", "dimensions": {"i": {"stop": 1}}},
    ],
)  # fmt: skip
def test_bad_gen(item: object) -> None:
    with pytest.raises(FormatError):
        dict(generate_references([item], Templates()))
