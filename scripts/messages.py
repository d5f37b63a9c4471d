"""List what insitu can say to its users: errors, hints, warnings, log lines and command line help.

`python scripts/messages.py` prints them; `tests/test_messages.py` holds the rules of their wording.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "insitu"

LOG_METHODS = {"warning", "error", "exception", "info", "critical"}
PLAIN_ERRORS = {"ValueError", "TypeError", "KeyError", "RuntimeError", "OSError", "ImportError", "NotImplementedError"}


def list_messages() -> str:
    """Return the text of the list: the messages of each module, in the order of the code."""
    lines = []
    for path in sorted(PACKAGE.rglob("*.py")):
        found = list(messages_of(path))
        if found:
            lines += [f"## {path.relative_to(PACKAGE).as_posix()}", *found, ""]
    return "\n".join(lines)


def messages_of(path: Path) -> Iterator[str]:
    """Yield the user-visible texts of one module; what is filled in later stands in braces."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    seen = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for text in _texts_of_call(node):
                if text and text not in seen:
                    seen.add(text)
                    yield text


def _texts_of_call(call: ast.Call) -> Iterator[str]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    is_error = name.endswith("Error") or name in PLAIN_ERRORS
    is_log = name in LOG_METHODS and isinstance(call.func, ast.Attribute)
    if is_error or name == "warn" or is_log or name in {"with_context", "explain"}:
        yield from filter(None, (_text(argument) for argument in call.args[:1]))
    for keyword in call.keywords:
        if keyword.arg in {"hint", "help"}:
            yield from filter(None, [_text(keyword.value)])


def _text(node: ast.expr) -> str | None:
    """Return a string expression as one line; None if it is not one."""
    if isinstance(node, ast.Constant):
        return " ".join(node.value.split()) if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = [
            value.value if isinstance(value, ast.Constant) else f"{{{ast.unparse(value.value)}}}"  # type: ignore[attr-defined]
            for value in node.values
        ]
        return " ".join("".join(map(str, parts)).split())
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        both = [_text(node.left), _text(node.right)]
        return " ".join(part or "{…}" for part in both) if any(both) else None
    if isinstance(node, ast.IfExp):
        return " | ".join(filter(None, [_text(node.body), _text(node.orelse)])) or None
    return None


if __name__ == "__main__":
    print(list_messages())
