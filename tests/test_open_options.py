"""Options of opening are written once: functions, command line, documentation and recipes follow the
fields of `OpenOptions`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import insitu
from insitu.cli import load_verb
from insitu.combining.recipe import Recipe
from insitu.open_options import DEFAULT, OPTIONS, CombineOptions, DecodeOptions, OpenOptions
from insitu.xarray_bridge.open_functions import open_groups

DOCS = Path(__file__).resolve().parents[1] / "docs"
USUAL = OpenOptions().values()
FUNCTIONS: dict[Callable[..., Any], set[str]] = {
    insitu.open_dataset: {"url", "decode"},
    insitu.open_mfdataset: {"paths", "decode"},
    insitu.open_mfdatatree: {"paths", "decode"},
    open_groups: {"url", "how"},
    insitu.scan: {"url", "decode"},
    insitu.Archive.open: {"urls", "many", "finish", "combine_found", "more"},
}
"""Functions that take options, and their parameters that are none."""
FURTHER = {"decode_cf": None, "auto_complex": False}
"""Keywords that functions take among their further ones, not by a parameter."""


def _options_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(function).parameters
    return {name: parameter for name, parameter in parameters.items() if name not in FUNCTIONS[function]}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__qualname__)
def test_functions_take_options_with_their_defaults(function: Callable[..., Any]) -> None:
    found = {name: parameter.default for name, parameter in _options_of(function).items()}
    assert found == {name: USUAL[name] for name in found}
    named = set(re.findall(r"\w+", inspect.getdoc(function) or ""))
    assert function is open_groups or not set(found) - named


def test_every_option_is_taken() -> None:
    """By a parameter of a function that opens, or among the further keywords that they name."""
    opening = (insitu.open_dataset, insitu.open_mfdataset, insitu.open_mfdatatree, insitu.Archive.open)
    parameters = {name for function in opening for name in _options_of(function)}
    further = (inspect.getdoc(insitu.open_dataset) or "").partition("**decode")[2].partition("Returns\n")[0]
    assert set(OPTIONS) - parameters == set(re.findall(r"`(\w+)`", further)) & {*OPTIONS}
    assert set(DecodeOptions.__slots__) | {*FURTHER} - {"auto_complex"} <= set(re.findall(r"`(\w+)`", further))


@pytest.mark.parametrize("verb", ["scan", "append"])
def test_flags_have_the_words_of_options(verb: str) -> None:
    flags = {tuple(option.opts): option.help for option in load_verb(verb).params if option.param_type_name == "option"}
    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    section = page.partition(f"\n## insitu {verb}\n")[2].partition("\n## ")[0]
    for name, about in OPTIONS.items():
        if not about.flags or (verb != "scan" and about.flags not in flags):
            continue
        words = about.flag_help or f"{about.help}{'; may be repeated' if about.repeats else ''}."
        assert flags[about.flags] == words, name
        assert f"| {', '.join(f'`{flag}`' for flag in about.flags)} | {words} |" in section.splitlines(), name


def _row(name: str) -> str:
    about, default = OPTIONS[name], USUAL[name]
    shown = "xarray's" if default is DEFAULT else "none" if default == frozenset() else f"`{default!r}`"
    flag = f"`{about.flags[0]}`" if about.flags else ""
    return f"| `{name}` | {shown} | {flag} | {'yes' if about.is_saved else ''} | {about.help} |"


def test_table_of_the_documentation() -> None:
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    section = text.partition("\n### Options\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [_row(name) for name in OPTIONS], "\n".join(["write:", *map(_row, OPTIONS)])


class TestCalls:
    def test_unknown_keywords_are_refused_with_a_near_one(self) -> None:
        with pytest.raises(TypeError, match="'chunk': did you mean 'chunks'"):
            OpenOptions.of(chunk={})
        with pytest.raises(TypeError, match=r"'create_default_index'$"):
            insitu.Archive.open("a.nc", create_default_index=False)
        with pytest.raises(TypeError, match="'variables'"):
            open_groups("a.nc", variables=["a"])

    @pytest.mark.parametrize("name", ["chunks", "preprocess", "attrs_file"])
    def test_options_of_datasets_belong_to_functions_that_make_one(self, name: str) -> None:
        with pytest.raises(TypeError, match=f"keyword argument {name!r}"):
            insitu.Archive.open("a.nc", **{name: None})

    @pytest.mark.parametrize(
        "wrong", [{"errors": "ignore"}, {"group": 5}, {"combine": "by_name"}], ids=lambda wrong: next(iter(wrong))
    )
    def test_values_are_checked(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
            OpenOptions.of(**wrong)

    def test_options_of_groups(self) -> None:
        options = CombineOptions(join="inner", by_group={"a/**": {"join": "left"}, "/a/b": {"compat": "equals"}})
        joins = {path: options.of_group(path).join for path in ("", "a", "a/b", "b")}
        assert joins == {"": "inner", "a": "left", "a/b": "left", "b": "inner"}
        assert options.of_group("a/b") == CombineOptions(join="left", compat="equals")
        with pytest.raises(TypeError, match="'joins': did you mean 'join'"):
            CombineOptions(by_group={"a": {"joins": "inner"}})
        with pytest.raises(TypeError, match="must be a mapping"):
            CombineOptions(by_group={"a": "inner"})  # type: ignore[dict-item]
        with pytest.raises(ValueError, match="combine"):
            CombineOptions(by_group={"a": {"combine": "any"}})

    def test_one_keyword_of_decoding_beside_decode_cf(self) -> None:
        decode = OpenOptions.of(decode_cf=False, mask_and_scale=True, decode_times=None).decode
        assert decode == DecodeOptions(
            decode_times=False, decode_timedelta=False, concat_characters=False, decode_coords=False
        )

    def test_replace(self) -> None:
        before = OpenOptions.of(group="a", variables="tas")
        after = before.replace(errors="warn", join="inner")
        assert after == OpenOptions.of(group="a", variables=["tas"], errors="warn", join="inner")
        assert before == OpenOptions.of(group="a", variables=("tas",))


class TestRecipes:
    """What a store keeps: written by this version and by earlier ones."""

    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"combine": "nested", "concat_dim": ["run", "time"], "data_vars": "minimal", "combine_attrs": "drop"},
            {"group": "a/b", "variables": ("tas", "pr"), "format": "hdf5", "concat_dim": {"run": r"(r\d)"}},
            {"decode_cf": False},
            {"tree": True, "by_group": {"a/*": {"combine": "nested", "concat_dim": None}}},
            {"decode_times": False, "mask_and_scale": {"tas": False}, "drop_variables": ["b", "a"]},
        ],
        ids=str,
    )
    def test_saved_and_read(self, options: dict[str, Any]) -> None:
        recipe = Recipe(OpenOptions.of(**options), files=("a.nc",))
        assert Recipe.from_document(recipe.to_document()) == recipe

    def test_of_earlier_versions(self) -> None:
        document = {"combine": "by_coords", "combine_attrs": "override", "variables": ["tas"], "later": 1}
        document["decoding"] = {"decode_cf": False, "use_cftime": None, "drop_variables": "b"}
        assert Recipe.from_document(document).options == OpenOptions.of(
            variables=("tas",), decode_cf=False, drop_variables=["b"]
        )

    def test_keywords_of_decoding_of_later_versions_are_not_passed_over(self) -> None:
        recipe = Recipe.from_document({"decoding": {"decode_everything": True}})
        assert "decode_everything" in str(recipe.unknown)

    def test_functions_are_named(self) -> None:
        document = Recipe(OpenOptions.of(combine_attrs=max, decode_times=object(), join="inner")).to_document()
        assert "combine_attrs=, decode_times=" in document["unknown"]
        assert document["join"] == "inner"
        assert not {"combine_attrs", "decoding"} & set(document)

    def test_secrets_stay_here(self) -> None:
        options = OpenOptions.of(storage_options={"secret": "hush"}, parallel=4, chunks={})
        assert "hush" not in repr(options)
        assert set(Recipe(options).to_document()) == {"combine", "combine_attrs"}
        assert "hush" not in str(options.scan_key())

    def test_keys_differ_where_results_do(self) -> None:
        usual = OpenOptions().scan_key()
        assert OpenOptions.of(parallel=4, chunks={}, cache=False, errors="warn").scan_key() == usual
        for other in ({"verify": "never"}, {"allow_local": True}, {"decode_times": False}, {"join": "inner"}):
            assert OpenOptions.of(**other).scan_key() != usual
        assert OpenOptions.of(combine_attrs=max).scan_key() is None
        assert (
            OpenOptions.of(decode_cf=False).scan_key()
            == OpenOptions.of(
                mask_and_scale=False,
                decode_times=False,
                decode_timedelta=False,
                concat_characters=False,
                decode_coords=False,
            ).scan_key()
        )


def test_every_option_of_combining_is_saved() -> None:
    assert all(OPTIONS[name].is_saved for name in CombineOptions.__slots__)
