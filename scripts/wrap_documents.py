"""Wrap the prose of the documents at 100 columns: paragraphs and items of lists that have a longer line.

Tables, code, headings, directives, HTML and front matter stay as they are, and so does every
paragraph whose lines are short enough. What must not be torn apart (code within a sentence, a link)
may be longer. `python scripts/wrap_documents.py` rewrites the documents of the repository, or those
that are named; with `--check` it only names those that it would change.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 100
PATTERNS = ("*.md", "docs/**/*.md", "examples/**/*.md", "tests/files/README.md")

FENCE = re.compile(r"(`{3,}|~{3,}|:{3,})")
ITEM = re.compile(r"([-*+]|\d{1,9}[.)])( +)(?=\S)")
ALONE = re.compile(r"#{1,6}( |$)|\||</?[A-Za-z!]|<!--|\[[^]]+\]:|\([\w.-]+\)=$|%|>|([-*_] ?){3,}$|=+$|-+$")
"""Lines that are no prose: headings, rows of tables, HTML, definitions of links, comments, quotations, rules."""
TOKEN = re.compile(r"(?:!?\[(?:[^][]|\[[^][]*\])*\](?:\([^()]*\)|\[[^]]*\])|(`+)(?:(?!\1).)+\1|\S)+")
"""A word, with links and code whole."""
BEGINS_BLOCK = re.compile(r"([-*+]|\d{1,9}[.)]|#{1,6}|=+|-+)$|\||[>%]|`{3}|~{3}|:{3}|</?[A-Za-z]|<!--|\[[^]]+\]:")
"""Words that would mean something else at the beginning of a line."""


def wrap(text: str) -> str:
    """Return a document in Markdown with its prose wrapped."""
    lines = text.split("\n")
    front = 0
    if lines[0] == "---" and "---" in lines[1:]:
        front = lines.index("---", 1) + 1
    return "\n".join([*lines[:front], *_wrap_blocks(lines[front:], WIDTH)])


def _wrap_blocks(lines: list[str], width: int) -> Iterator[str]:
    """Yield the lines of some blocks, which begin in the first column."""
    at = 0
    while at < len(lines):
        line = lines[at]
        item = ITEM.match(line)
        if fence := FENCE.match(line):
            end = next((n for n in range(at + 1, len(lines)) if _closes(lines[n], fence[1])), len(lines) - 1) + 1
            yield from lines[at:end]
        elif item is not None:
            indent = len(item[0])
            end = _end_of_item(lines, at, indent)
            inner = [line[indent:], *(one[indent:] if one[:indent].isspace() else one for one in lines[at + 1 : end])]
            for number, one in enumerate(_wrap_blocks(inner, width - indent)):
                yield (item[0] if not number else " " * indent if one else "") + one
        elif not line.strip() or line.startswith("    ") or ALONE.match(line):
            end = at + 1
            yield line
        else:
            end = next((n for n in range(at + 1, len(lines)) if _ends_paragraph(lines[n])), len(lines))
            yield from _wrap_paragraph(lines[at:end], width)
        at = end


def _closes(line: str, fence: str) -> bool:
    return line.strip().startswith(fence) and not line.strip().strip(fence[0])


def _end_of_item(lines: list[str], at: int, indent: int) -> int:
    """Return the line behind an item of a list: what is indented belongs to it, and what goes on its paragraph."""
    end, after_blank = at + 1, False
    while end < len(lines):
        line = lines[end]
        is_inside = line.startswith(" " * indent) if line.strip() else True
        goes_on = not after_blank and not _ends_paragraph(line)
        if not is_inside and not goes_on:
            break
        after_blank = not line.strip()
        end += 1
    while not lines[end - 1].strip():  # those belong to nobody
        end -= 1
    return end


def _ends_paragraph(line: str) -> bool:
    bare = line.lstrip()
    return not bare or any(pattern.match(bare) for pattern in (FENCE, ITEM, ALONE))


def _wrap_paragraph(lines: list[str], width: int) -> list[str]:
    if max(map(len, lines)) <= width or any(line.endswith(("  ", "\\")) for line in lines[:-1]):
        return lines
    words = [word[0] for word in TOKEN.finditer(" ".join(line.strip() for line in lines))]
    wrapped = [words[0]]
    for word in words[1:]:
        if len(wrapped[-1]) + 1 + len(word) <= width or BEGINS_BLOCK.match(word):
            wrapped[-1] += f" {word}"
        else:
            wrapped.append(word)
    return wrapped


def main() -> None:
    """Wrap documents, or check that they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("documents", nargs="*", type=Path, help="all documents of the repository by default")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if something would be changed")
    given = parser.parse_args()
    documents = given.documents or sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})
    changed = []
    for path in documents:
        if "_build" in path.parts:
            continue
        text = path.read_text(encoding="utf-8")
        if (wrapped := wrap(text)) != text:
            changed.append(path)
            if not given.check:
                path.write_text(wrapped, encoding="utf-8")
    for path in changed:
        print(f"{path}: {'has prose beyond' if given.check else 'wrapped at'} {WIDTH} columns")
    if changed and given.check:
        sys.exit("python scripts/wrap_documents.py wraps them")


if __name__ == "__main__":
    main()
