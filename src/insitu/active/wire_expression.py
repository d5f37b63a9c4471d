"""Wire format of expressions: arrays, constants, and typed nodes that name operations. Never code.

An expression is a list of nodes. A node refers only to nodes before it, so shared parts are sent
once and nothing can be cyclic; the last node is the result. Operations are those of
`insitu.model.elementwise`, by name. A number of Python stays one (`{"number": 2}`), because NumPy
lets it take the type of the array beside it (NEP 50); a scalar of NumPy has a type (`{"scalar":
…}`). Incoming nodes are checked one by one: an unknown name, a wrong number of arguments or a
reference to a later node raises an error that names the node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from insitu.active.wire import (
    check_integer,
    check_shape,
    dtype_from_wire,
    dtype_to_wire,
    excerpt,
    get_field,
    values_from_wire,
    values_to_wire,
)
from insitu.active.wire_array import array_to_wire
from insitu.errors import InsituError, ModelError, UnsupportedError
from insitu.expressions.build_expression import table_of
from insitu.expressions.node_table import (
    Argument,
    ArrayNode,
    ConstantRef,
    MembersRef,
    Node,
    NodeRef,
    NodeTable,
    OperationNode,
)
from insitu.expressions.nodes import CAST, Errors, Expression
from insitu.model.elementwise import ARGUMENT_COUNTS, UFUNCS

__all__ = [
    "ERROR_KINDS",
    "KINDS",
    "MAX_ARRAYS",
    "MAX_CONSTANT_BYTES",
    "MAX_NODES",
    "STEP_SETTINGS",
    "expression_from_wire",
    "expression_to_wire",
]

MAX_NODES = 512
"""Nodes of an expression."""
MAX_ARRAYS = 256
"""Stored arrays of an expression."""
MAX_CONSTANT_BYTES = 64 << 20
"""Bytes of all constants together."""
MAX_DECIMALS = 400
"""Decimals of a rounding: NumPy multiplies by 10 so often, and float64 ends at 1e308."""
MAX_LIST_VALUES = 1 << 20
"""Values of a constant that is written as a list."""
KINDS = "biufcmM"
"""Kinds of types that values of an expression may have."""
ERROR_KINDS = ("divide", "over", "under", "invalid")
ERROR_ACTIONS = ("ignore", "warn", "raise")
WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""Numbers that JSON does not have."""


def expression_to_wire(expression: Expression) -> dict[str, Any]:
    """Return an expression as maps, lists, numbers, text and bytes.

    Raises
    ------
    UnsupportedError
        If it is larger than servers accept, or has windows, or numbers that cannot be sent.
    """
    table = table_of(expression, lambda array: {"array": array_to_wire(array)})
    if len(table.nodes) > MAX_NODES or len(table.arrays) > MAX_ARRAYS:
        raise UnsupportedError(f"servers do not compute expressions of more than {MAX_NODES} operations")
    if sum(constant.nbytes for constant in table.constants) > MAX_CONSTANT_BYTES:
        raise UnsupportedError(f"servers do not take more than {MAX_CONSTANT_BYTES >> 20} MiB of arrays in memory")
    return {
        "arrays": list(table.arrays),
        "constants": [values_to_wire(constant) for constant in table.constants],
        "nodes": [_node_to_wire(node) for node in table.nodes],
    }


def _node_to_wire(node: Node) -> dict[str, Any]:
    match node:
        case ArrayNode(number):
            return {"array": number}
        case OperationNode(operation, arguments, errors, to):
            entry: dict[str, Any] = {
                "operation": operation,
                "arguments": [_argument_to_wire(argument) for argument in arguments],
            }
            if to is not None:
                assert operation == CAST, "other types follow from the operands"
                entry = {"step": "cast", "of": arguments[0].number, "to": dtype_to_wire(to)}  # type: ignore[union-attr]
            return {**entry, "errors": dict(errors)} if errors else entry


def _argument_to_wire(argument: Any) -> Any:
    match argument:
        case None:
            return None
        case NodeRef(number):
            return {"node": number}
        case ConstantRef(number):
            return {"constant": number}
        case MembersRef(number):
            return {"members": number}
        # Before the numbers of Python: float64 is a float, and complex128 a complex.
        case np.generic():
            return {"scalar": values_to_wire(np.asarray(argument))}
        case bool() | float():
            return {"number": argument}
        case int() if -(1 << 63) <= argument < 1 << 64:
            return {"number": argument}
        case complex():
            return {"complex": [argument.real, argument.imag]}
    raise UnsupportedError(f"servers do not take the {type(argument).__name__} {excerpt(argument)}")


def expression_from_wire(data: Any) -> NodeTable:
    """Return the expression that `expression_to_wire` wrote, its arrays as they were received.

    Raises
    ------
    ModelError
        If it is not one, or too large.
    """
    arrays, nodes = get_field(data, "arrays", list), get_field(data, "nodes", list)
    if unknown := set(data) - {"arrays", "constants", "nodes"}:
        raise ModelError(f"an expression has arrays, constants and nodes, not {min(map(excerpt, unknown))}")
    if not 1 <= len(nodes) <= MAX_NODES:
        raise ModelError(f"an expression must have 1 to {MAX_NODES} nodes, not {len(nodes)}")
    if not 1 <= len(arrays) <= MAX_ARRAYS:
        raise ModelError(f"an expression must have 1 to {MAX_ARRAYS} arrays, not {len(arrays)}")
    listed = data.get("constants", [])
    if not isinstance(listed, list) or len(listed) > 2 * MAX_NODES:
        raise ModelError(f"the constants of an expression must be a list of at most {2 * MAX_NODES}")
    constants = tuple(_constant_from_wire(constant) for constant in listed)
    if sum(constant.nbytes for constant in constants) > MAX_CONSTANT_BYTES:
        raise ModelError(f"the constants of an expression have more than {MAX_CONSTANT_BYTES} bytes")
    parsed: list[Node] = []
    for number, node in enumerate(nodes):
        try:
            parsed.append(_node_from_wire(node, number, len(arrays), len(constants)))
        except InsituError as problem:
            raise ModelError(f"node {number} of the expression: {problem}") from None
    return NodeTable(tuple(arrays), constants, tuple(parsed))


def _constant_from_wire(data: Any) -> npt.NDArray[Any]:
    """Return a constant: type, shape and bytes, or type and a list of values."""
    values = _values_from_list(data) if isinstance(data, dict) and "values" in data else values_from_wire(data)
    if values.dtype.kind not in KINDS:
        raise ModelError(f"a constant must consist of numbers or times, not of {values.dtype}")
    return values


def _values_from_list(data: Mapping[str, Any]) -> npt.NDArray[Any]:
    listed, dtype = data["values"], dtype_from_wire(get_field(data, "dtype"))
    if dtype.kind not in KINDS:
        raise ModelError(f"a constant must consist of numbers or times, not of {dtype}")
    shape = _shape_of_list(listed)
    if math.prod(shape) > MAX_LIST_VALUES:
        raise ModelError(f"a constant that is a list has at most {MAX_LIST_VALUES} values")
    try:
        values = np.array(listed, dtype)
    except (ValueError, TypeError, OverflowError) as problem:
        raise ModelError(f"a constant must be a list of values of {dtype}: {str(problem)[:100]}") from None
    if values.shape != shape:
        raise ModelError("the lists of a constant must have equal lengths")
    return values


def _shape_of_list(listed: Any) -> tuple[int, ...]:
    """Return the lengths of lists within lists, by the first of each."""
    lengths: list[int] = []
    while isinstance(listed, list) and len(lengths) < 65:
        lengths.append(len(listed))
        listed = listed[0] if listed else None
    return check_shape(lengths)


def _node_from_wire(data: Any, number: int, arrays: int, constants: int) -> Node:
    """Return a node; what it refers to has to be there, and nodes have to be earlier ones."""
    kinds = [name for name in ("array", "operation", "step") if isinstance(data, dict) and name in data]
    if not kinds:
        raise ModelError("a node must be a map with the entry 'array', 'operation' or 'step'")
    if "step" in kinds:
        return _step_from_wire(data, number, constants)
    if "operation" in kinds:
        return _operation_from_wire(data, number, constants)
    _check_entries(data, {"array"})
    return ArrayNode(_check_reference(data["array"], arrays, "array"))


def _check_entries(data: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(map(excerpt, set(data) - known)):
        raise ModelError(f"unknown entry {unknown[0]}; known are {', '.join(sorted(known))}")


def _check_reference(data: Any, count: int, what: str) -> int:
    number = check_integer(data)
    if not 0 <= number < count:
        raise ModelError(f"{what} {number} does not exist, or comes later")
    return number


def _operation_from_wire(data: Mapping[str, Any], number: int, constants: int) -> OperationNode:
    _check_entries(data, {"operation", "arguments", "errors"})
    name, listed = get_field(data, "operation", str), get_field(data, "arguments", list)
    if name not in ARGUMENT_COUNTS:
        raise ModelError(f"there is no operation {name[:60]!r}")
    if len(listed) != ARGUMENT_COUNTS[name]:
        raise ModelError(f"{name} takes {ARGUMENT_COUNTS[name]} arguments, not {len(listed)}")
    arguments = tuple(_argument_from_wire(argument, number, constants) for argument in listed)
    if not any(isinstance(argument, NodeRef) for argument in arguments):
        raise ModelError(f"one argument of {name} must be a node")
    if any(isinstance(argument, MembersRef) != (name == "is_in" and at == 1) for at, argument in enumerate(arguments)):
        raise ModelError("members are the second argument of is_in, and nothing else")
    if any(argument is None for argument in arguments[: 1 if name == "clip" else None]):
        raise ModelError("only the limits of clip can be null")
    if name == "round":
        _check_decimals(arguments[1])
    return OperationNode(name, arguments, _errors_from_wire(data.get("errors")))


def _check_decimals(decimals: Any) -> int:
    if not isinstance(decimals, int) or isinstance(decimals, bool) or abs(decimals) > MAX_DECIMALS:
        raise ModelError(f"decimals must be an integer from -{MAX_DECIMALS} to {MAX_DECIMALS}")
    return decimals


def _errors_from_wire(data: Any) -> Errors:
    if data is None:
        return ()
    if not isinstance(data, dict) or any(
        kind not in ERROR_KINDS or how not in ERROR_ACTIONS for kind, how in data.items()
    ):
        raise ModelError(f"errors must be a map of {', '.join(ERROR_KINDS)} to {', '.join(ERROR_ACTIONS)}")
    return tuple(data.items())


def _argument_from_wire(data: Any, number: int, constants: int) -> Argument:
    if data is None:
        return None
    if not isinstance(data, dict) or len(data) != 1:
        raise ModelError("an argument must be a map with one entry, or null")
    kind, value = next(iter(data.items()))
    match kind:
        case "node":
            return NodeRef(_check_reference(value, number, "node"))
        case "constant":
            return ConstantRef(_check_reference(value, constants, "constant"))
        case "members":
            return MembersRef(_check_reference(value, constants, "constant"))
    return _number_from_wire(data)


def _number_from_wire(data: Any) -> bool | int | float | complex | np.generic:
    """Return a number of Python or a scalar of NumPy."""
    if not isinstance(data, dict) or len(data) != 1:
        raise ModelError("a number must be a map with the entry 'number', 'complex' or 'scalar'")
    kind, value = next(iter(data.items()))
    if kind == "number":
        if isinstance(value, str) and value in WORDS:
            return WORDS[value]
        if isinstance(value, (bool, float)) or (isinstance(value, int) and -(1 << 63) <= value < 1 << 64):
            return value
        raise ModelError("a number must be true, false, an integer of 64 bits, a float, 'nan', 'inf' or '-inf'")
    if kind == "complex":
        if isinstance(value, list) and len(value) == 2 and all(isinstance(part, float) for part in value):
            return complex(*value)
        raise ModelError("a complex number must be a list of two floats")
    if kind == "scalar":
        found = _constant_from_wire(value)
        if found.shape:
            raise ModelError(f"a scalar must have the shape [], not {list(found.shape)[:8]}")
        return cast(np.generic, found[()])
    raise ModelError(f"{excerpt(kind)} is no kind of argument")


def _step_from_wire(data: Mapping[str, Any], number: int, constants: int) -> OperationNode:
    """Return a node in the form that names what it is done to, and settings."""
    name = get_field(data, "step", str)
    if name not in STEP_SETTINGS:
        raise ModelError(f"there is no step {name[:60]!r}")
    parsers = STEP_SETTINGS[name]
    _check_entries(data, {"step", "of", *parsers})
    settings = {
        setting: parse(data.get(setting) if setting == "errors" else get_field(data, setting), constants)
        for setting, parse in parsers.items()
    }
    of = NodeRef(_check_reference(get_field(data, "of"), number, "node"))
    to, errors = settings.pop("to", None), settings.pop("errors", ())
    return OperationNode(STEP_OPERATIONS.get(name, name), (of, *settings.values()), errors, to)


def _type_from_wire(data: Any, constants: int) -> np.dtype[Any]:
    dtype = dtype_from_wire(data)
    if dtype.kind not in KINDS:
        raise ModelError(f"values of an expression cannot be of {dtype}")
    return dtype


def _condition_from_wire(data: Any, constants: int) -> ConstantRef:
    return ConstantRef(_check_reference(get_field(data, "constant"), constants, "constant"))


def _ufunc_from_wire(data: Any, constants: int) -> str:
    if not isinstance(data, str) or data not in set(UFUNCS.values()) or ARGUMENT_COUNTS[data] != 2:
        raise ModelError(f"there is no operation of two arguments {excerpt(data)}")
    return data


STEP_SETTINGS: Mapping[str, Mapping[str, Callable[[Any, int], Any]]] = {
    "is_null": {},
    "not": {},
    "cast": {"to": _type_from_wire, "errors": lambda data, constants: _errors_from_wire(data)},
    "fill_null": {"value": lambda data, constants: _number_from_wire(data), "to": _type_from_wire},
    "where": {
        "condition": _condition_from_wire,
        "other": lambda data, constants: _number_from_wire(data),
        "to": _type_from_wire,
    },
    "round": {"decimals": lambda data, constants: _check_decimals(data)},
    "combine": {"operation": _ufunc_from_wire, "number": lambda data, constants: _number_from_wire(data)},
}
"""For each step its entries, and what parses each."""
STEP_OPERATIONS = {"cast": CAST, "where": "mask", "round": "round_to"}
"""Operations of `build_expression` that steps are, where their names differ."""
