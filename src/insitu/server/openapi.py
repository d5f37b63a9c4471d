"""The OpenAPI document of all routes.

Written by hand, because the requests are parsed by hand: there are no model classes to generate it
from. Names of methods, types and operations are taken from the code; the tests send requests that a
generator derives from this document (tests/server/test_openapi.py).
"""

from __future__ import annotations

from typing import Any

from insitu import __version__
from insitu.reducing.reductions import STREAMED
from insitu.server.jobs import BLOCKWISE_METHODS
from insitu.server.reductionist.operations import OPERATIONS
from insitu.server.reductionist.request import DTYPES

__all__ = ["openapi_document"]

Schema = dict[str, Any]

ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message"],
            "properties": {"message": {"type": "string"}, "caused_by": {"type": "array", "items": {"type": "string"}}},
        }
    },
}


def _nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _integer_from(minimum: int = 0) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": 2**63 - 1}


INT64: Schema = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}

CHUNK_REQUEST: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["interface_type", "url", "dtype"],
    "properties": {
        "interface_type": {"enum": ["s3", "http", "https", "file"]},
        "url": {"type": "string", "description": "S3: endpoint/bucket/key; else a web address or a file URL."},
        "dtype": {"enum": list(DTYPES)},
        "byte_order": _nullable({"enum": ["big", "little"]}),
        "offset": _nullable(_integer_from()),
        "size": _nullable(_integer_from(1)),
        "shape": _nullable({"type": "array", "items": _integer_from(1), "minItems": 1, "maxItems": 32}),
        "axis": _nullable(
            {"anyOf": [_integer_from(), {"type": "array", "items": _integer_from(), "uniqueItems": True}]}
        ),
        "order": _nullable({"enum": ["C", "F"]}),
        "selection": _nullable(
            {"type": "array", "minItems": 1, "items": {"type": "array", "items": INT64, "minItems": 3, "maxItems": 3}}
        ),
        "compression": _nullable({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}),
        "filters": _nullable(
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["id"],
                    "properties": {"id": {"type": "string"}, "element_size": _integer_from(1)},
                },
            }
        ),
        "missing": _nullable(
            {
                "type": "object",
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
                "properties": {
                    "missing_value": {"type": "number"},
                    "missing_values": {"type": "array", "items": {"type": "number"}},
                    "valid_min": {"type": "number"},
                    "valid_max": {"type": "number"},
                    "valid_range": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
                },
            }
        ),
        "option_disable_chunk_cache": _nullable({"type": "boolean"}),
        "option_shape_as_bytes": _nullable({"type": "boolean"}),
        "option_count_as_bytes": _nullable({"type": "boolean"}),
    },
}

SELECTION_ENTRY: Schema = {
    "anyOf": [
        INT64,
        {"type": "array", "items": INT64, "minItems": 3, "maxItems": 3, "description": "start, step, length"},
        {
            "type": "object",
            "additionalProperties": False,
            "minProperties": 1,
            "maxProperties": 1,
            "properties": {
                "slice": {"type": "array", "items": _nullable(INT64), "minItems": 1, "maxItems": 3},
                "index": {"type": "array", "items": INT64},
            },
        },
    ]
}


def _job_schema(reducing: bool) -> Schema:
    properties: Schema = {
        "url": {"type": "string", "description": "An archive file, a Zarr store, or saved references."},
        "variable": {"type": "string", "description": "Name of the variable; groups before slashes."},
        "decode": {
            "type": "boolean",
            "default": True,
            "description": "true: values as xarray shows them; false: as they are stored.",
        },
        "array": {"type": "object", "description": "Instead of url and variable: the location of every chunk."},
        "selection": _nullable(
            {"type": "array", "items": SELECTION_ENTRY, "description": "One entry for each dimension."}
        ),
    }
    if reducing:
        properties |= {
            "methods": {
                "type": "array",
                "items": {"enum": [*STREAMED, *BLOCKWISE_METHODS, "sum_of_weights"]},
                "minItems": 1,
                "uniqueItems": True,
            },
            "axes": _nullable({"anyOf": [INT64, {"type": "array", "items": INT64}]}),
            "dim": _nullable({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
            "skipna": _nullable({"type": "boolean"}),
            "ddof": {"type": "number"},
            "min_count": _nullable(_integer_from()),
            "q": {
                "anyOf": [
                    {"type": "number", "minimum": 0, "maximum": 1},
                    {"type": "array", "items": {"type": "number"}},
                ]
            },
            "edges": _nullable({"type": "array", "items": {"type": "number"}, "minItems": 2}),
            "keepdims": {"type": "boolean"},
            "weights": _nullable(
                {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "number"}}}
            ),
            "groups": _nullable(
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["axis", "codes", "count"],
                    "properties": {
                        "axis": _integer_from(),
                        "codes": {"type": "array", "items": INT64},
                        "count": _integer_from(),
                    },
                }
            ),
            "answer": {"enum": ["values", "partial"]},
        }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _batch_schema(reducing: bool) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["jobs"],
        "properties": {
            "jobs": {"type": "array", "items": _job_schema(reducing), "minItems": 1, "maxItems": 10_000},
            "cache": {"type": ["boolean", "null"], "default": True},
            "options": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "anon": {"type": "boolean"},
                    "endpoint_url": {"type": "string"},
                    "region": {"type": "string"},
                },
            },
        },
    }


SCAN_REQUEST: Schema = {
    "type": "object",
    "additionalProperties": False,
    "required": ["url"],
    "properties": {
        "url": {"type": "string"},
        "group": _nullable({"type": "string"}),
        "options": _batch_schema(True)["properties"]["options"],
    },
}


def _error_responses(*codes: int) -> Schema:
    descriptions = {
        400: "The request is not valid.", 401: "Credentials are missing or wrong.", 403: "The URL is not under a root.",
        404: "The archive, variable or key does not exist.", 409: "An object has changed since it was scanned.", 413: "The request needs more than the limits of the server allow.",
        422: "The archive cannot be read.", 429: "The server is busy: try again after Retry-After seconds.",
        502: "The storage failed.", 503: "The request took too long.", 504: "The storage did not answer.",
    }  # fmt: skip
    answers: Schema = {}
    for code in codes:
        answers[str(code)] = {"description": descriptions[code], "content": {"application/json": {"schema": ERROR}}}
    if "429" in answers:
        answers["429"]["headers"] = {"Retry-After": {"schema": {"type": "integer"}}}
    return answers


def _ok_response(about: str, media: str, schema: Schema | None = None) -> Schema:
    return {"200": {"description": about, "content": {media: {"schema": schema or {}}}}}


def openapi_document() -> Schema:
    """Return the OpenAPI document."""
    chunk = _error_responses(400, 401, 403, 413, 429, 503)
    batch = _error_responses(400, 401, 403, 404, 409, 413, 422, 429, 502, 503, 504)
    paths: Schema = {}
    for prefix in ("", "/keepdims"):
        for operation in OPERATIONS:
            paths[f"{prefix}/v2/{operation}"] = {
                "post": {
                    "summary": f"{operation} of one chunk" + (", reduced dimensions kept" if prefix else ""),
                    "requestBody": {"required": True, "content": {"application/json": {"schema": CHUNK_REQUEST}}},
                    "responses": {**_ok_response("The result, a CBOR map.", "application/cbor"), **chunk},
                }
            }
    for name, reducing in (("reduce", True), ("read", False)):
        content = {"application/json": {"schema": _batch_schema(reducing)}, "application/cbor": {"schema": {}}}
        paths[f"/{name}"] = {
            "post": {
                "summary": f"{name} many arrays at once",
                "requestBody": {"required": True, "content": content},
                "responses": {**_ok_response("A sequence of CBOR items.", "application/cbor-seq"), **batch},
            }
        }
    paths["/scan"] = {
        "post": {
            "summary": "Metadata of an archive, with the location of every chunk",
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": SCAN_REQUEST}, "application/cbor": {"schema": {}}},
            },
            "responses": {**_ok_response("A sequence of CBOR items.", "application/cbor-seq"), **batch},
        }
    }
    plain = {"type": "object"}
    paths["/health"] = {
        "get": {
            "summary": "Whether the server is alive",
            "responses": _ok_response("It is.", "application/json", plain),
        }
    }
    paths["/ready"] = {
        "get": {
            "summary": "Whether the server accepts requests",
            "responses": {
                **_ok_response("It does.", "application/json", plain),
                "503": {
                    "description": "The queue is full, or the server is stopping.",
                    "content": {"application/json": {"schema": plain}},
                },
            },
        }
    }
    paths["/metrics"] = {
        "get": {
            "summary": "Counters for Prometheus",
            "responses": {
                **_ok_response("Prometheus text format.", "text/plain; version=0.0.4"),
                **_error_responses(401),
            },
        }
    }
    paths["/openapi.json"] = {
        "get": {
            "summary": "This document",
            "responses": _ok_response("The OpenAPI document.", "application/json", plain),
        }
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "insitu serve",
            "version": __version__,
            "description": "Decodes and reduces arrays next to the data.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic"},
            }
        },
        "security": [{}, {"bearer": []}, {"basic": []}],
    }
