"""Check of untrusted XML documents for a document type declaration.

A document type may declare entities that expand without a bound. It is looked for by the parser
that reads the document and not in its bytes: those depend on the encoding, which the document
chooses (UTF-16, say).
"""

from __future__ import annotations

from xml.parsers import expat

__all__ = ["declares_doctype"]

_BLOCK = 1 << 16


def declares_doctype(data: bytes | str) -> bool:
    """Return whether a document declares a document type; it must stand before the first element.
    Damage is not reported here.

    Examples
    --------
    >>> declares_doctype('<!DOCTYPE a [<!ENTITY b "c">]><a/>'.encode("utf-16")), declares_doctype(b"<a><!-- b --></a>")
    (True, False)
    """
    found: list[bool] = []
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = lambda *_: found.append(True)
    parser.StartElementHandler = lambda *_: found.append(False)
    try:
        for begin in range(0, len(data), _BLOCK):
            parser.Parse(data[begin : begin + _BLOCK], False)
            if found:
                break
    except (expat.ExpatError, ValueError, LookupError):
        pass  # what comes before the damage counts; the document's reader will tell the rest
    return bool(found) and found[0]
