"""Values of expressions.

The stored arrays of an expression are read in one batch, each once; each shared part is computed once. A large
expression is evaluated in boxes that lie on the borders of chunks, several at a time, straight into the result.
Values that were kept from an earlier use are found here, also those of what an expression was derived from.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from insitu.cancellation import cap_threads, carry_deadline, check_deadline
from insitu.errors import InsituError
from insitu.expressions.boxes import MOST_ROOMS, Box, BoxMemory, iterate_boxes
from insitu.expressions.chunk_grid import read_itemsize
from insitu.expressions.element_operations import find_filled
from insitu.expressions.moves import select_box
from insitu.expressions.nodes import (
    CAST,
    Broadcast,
    Constant,
    Expression,
    Moved,
    Operation,
    Stored,
    WindowsOf,
    is_stored,
    iterate_nodes,
    without_moves,
)
from insitu.expressions.window_reach import COPIES, find_reach
from insitu.expressions.windows import compute_windows
from insitu.lru import LruCache
from insitu.model.elementwise import OPERATIONS
from insitu.reading import PartialChunkCache, ReadContext, read_arrays
from insitu.reading.thread_pools import count_cores
from insitu.reading.value_cache import ValueCache

__all__ = [
    "box_reader",
    "evaluate_boxes",
    "find_values",
    "read_all",
    "read_and_keep",
    "root_of",
    "threads_at_once",
]

Values = npt.NDArray[Any]
Result = TypeVar("Result")

ROOT_BYTES = 64 << 20
"""Arrays up to this size are read whole and kept, where something that was derived from one is used."""
BOX_BYTES = 8 << 20
"""Of an expression: what is computed at a time by one thread."""
WINDOW_MEMORY = 512 << 20
"""Bytes that boxes with windows, all that are evaluated at a time, should need."""
PART_BYTES = 256 << 10
"""A part that is smaller takes as long as one of this size: 2 ms, whatever it is."""
MOST_DERIVED = 16
"""How many derivations back kept values are looked for."""


def read_all(arrays: Sequence[Expression], *, once: bool = False) -> list[Values]:
    """Return the values of several arrays, in one batch of reads; the caller may write to them.

    Parameters
    ----------
    arrays
        The arrays.
    once
        Whether they are read in one pass over many, of which nothing is to be kept.
    """
    found = [find_values(array) for array in arrays]
    missing = [number for number, values in enumerate(found) if values is None]
    given: set[int] = set()  # what is the same array twice becomes two
    for number, values in zip(missing, _evaluate([arrays[number] for number in missing], once), strict=True):
        found[number] = values if values.flags.writeable and id(values) not in given else np.array(values)
        given.add(id(values))
    return [np.array(values) if number not in missing else values for number, values in enumerate(found)]  # type: ignore[misc]


def find_values(expression: Expression) -> Values | None:
    """Return the values of an expression if they, or those of what it was derived from, were kept; read-only."""
    cache = expression.context.values
    if cache is None:
        return None
    node: Expression | None = expression
    derivations: list[tuple[Expression, Expression]] = []
    while node is not None and len(derivations) < MOST_DERIVED:
        values = None if node.key is None else cache.get(node.key)
        if values is not None:
            for derived, origin in reversed(derivations):
                values = _derive(derived, origin, values)
            return values
        before = _origin_of(node)
        if before is not None:
            derivations.append((node, before))
        node = before
    return None


def _origin_of(node: Expression) -> Expression | None:
    """Return what a node is derived from, if it is made of the values of that alone."""
    match node:
        case Moved(of):
            return of
        case Broadcast(of):
            return of
        case Operation():
            filled = find_filled(node)
            if filled is not None:
                return filled[0]
            arrays = [operand for operand in node.operands if not isinstance(operand, Constant)]
            return arrays[0] if arrays and all(array is arrays[0] for array in arrays) else None
    return None


def _derive(node: Expression, origin: Expression, values: Values) -> Values:
    """Return the values of a node, given those of its origin."""
    if isinstance(node, Moved):
        return np.asarray(node.move.of_values(values))
    return _Evaluation([node]).run({id(origin): values})[0]


def read_and_keep(expression: Expression) -> Values:
    """Return the values of an expression for a computation that does not write to them.

    They are kept for the next one, if there is room.
    """
    found = find_values(expression)
    if found is not None:
        return found
    cache = expression.context.values
    if cache is None:
        return _evaluate([expression])[0]
    root = root_of(expression)
    if root is not expression and _is_worth_reading_whole(root, expression.nbytes, cache):
        try:
            cache.keep(root.make_key(), _evaluate([root])[0], root.context.owner)
        except InsituError:  # another part may be damaged or gone: what was asked for counts
            root.make_key().bytes_read = 0
        found = find_values(expression)
        if found is not None:
            return found
    values = _evaluate([expression])[0]
    if isinstance(expression, Constant) or not cache.can_keep(expression.nbytes):
        return values
    return cache.keep(expression.make_key(), values, expression.context.owner)


def _is_worth_reading_whole(root: Expression, nbytes: int, cache: ValueCache) -> bool:
    """Return whether a small array is to be read whole, of which a part is used.

    What was derived is often gone after its use (the windows of a rolling mean, one step after the
    other), but the array that it was derived from is used again. So it is read whole once its parts
    had a quarter of its bytes: that costs at most four times of what they did. From the second on, a part
    counts as at least `PART_BYTES`.
    """
    if root.nbytes > ROOT_BYTES or root.context.values is None or not cache.can_keep(root.nbytes):
        return False
    key = root.make_key()
    key.bytes_read += max(nbytes, PART_BYTES) if key.bytes_read else nbytes
    return root.nbytes <= 4 * key.bytes_read


def root_of(expression: Expression) -> Expression:
    """Return the expression that another one was derived from in the end."""
    for _ in range(MOST_DERIVED):
        origin = _origin_of(expression)
        if origin is None:
            break
        expression = origin
    return expression


def _evaluate(arrays: Sequence[Expression], once: bool = False) -> list[Values]:
    """Return the values of several arrays; those without operands are read in one batch."""
    large = [not is_stored(array) and _reads_much(array) for array in arrays]
    together = iter(_Evaluation([a for a, alone in zip(arrays, large, strict=True) if not alone], once).run())
    return [_evaluate_large(array) if alone else next(together) for array, alone in zip(arrays, large, strict=True)]


def _reads_much(array: Expression) -> bool:
    """Return whether more is read or computed for an expression than at a time."""
    reach = find_reach(array)
    return array.nbytes > BOX_BYTES or (bool(reach) and reach.count(array.shape) * read_itemsize(array) > BOX_BYTES)


def _evaluate_large(array: Expression) -> Values:
    """Return the values of an expression, evaluated box by box into the result."""
    result = np.empty(array.shape, array.dtype)
    for _ in evaluate_boxes(array, BoxMemory(BOX_BYTES), lambda box, values: result.__setitem__(box, values)):
        pass
    return result


def evaluate_boxes(
    array: Expression, memory: BoxMemory, finish: Callable[[Box, Values], Result], known: Values | None = None
) -> Iterator[tuple[Box, Result]]:
    """Yield the boxes of an array and what is made of their values, in order.

    Several are evaluated at a time, each on a thread.

    Parameters
    ----------
    array
        The array.
    memory
        What may be held at a time.
    finish
        Makes something of a box and its values.
    known
        The values of the array, if they were kept from an earlier use.
    """
    read = box_reader(array, memory, known)

    def evaluate(box: Box) -> Result:
        return finish(box, read(box))

    boxes = iterate_boxes(array, memory)
    first = list(islice(boxes, 2))
    if len(first) <= 1:
        yield from ((box, evaluate(box)) for box in first)
        return
    width = min(_count_threads(array, first[0]), memory.at_once or threads_at_once())
    # Threads of their own: while they wait for what they read, those of the readers' pool are free to read it.
    with ThreadPoolExecutor(width, "insitu-expression") as pool:
        pending: deque[tuple[Box, Future[Result]]] = deque()
        carried = carry_deadline(evaluate)
        try:
            for box in chain(first, boxes):
                pending.append((box, pool.submit(carried, box)))
                if len(pending) > width:
                    yield _take_first(pending)
            while pending:
                yield _take_first(pending)
        finally:
            for _, future in pending:
                future.cancel()


def threads_at_once() -> int:
    """Return how many boxes are evaluated at a time, at most."""
    return count_cores() + 1


def _count_threads(array: Expression, box: Box) -> int:
    """Return how many boxes are evaluated at a time: fewer, where windows need much memory."""
    reach = find_reach(array)
    needed = reach.count([part.stop - part.start for part in box]) * read_itemsize(array) * COPIES if reach else 0
    return min(cap_threads(threads_at_once()), max(WINDOW_MEMORY // max(needed, 1), 1))


def _take_first(pending: deque[tuple[Box, Future[Result]]]) -> tuple[Box, Result]:
    box, future = pending.popleft()
    return box, future.result()


def box_reader(
    array: Expression, memory: BoxMemory, known: Values | None = None, chunks: PartialChunkCache | None = None
) -> Callable[[Box], Values]:
    """Return what reads boxes of an array, one after another: chunks that lie in several are kept.

    Parameters
    ----------
    array, memory
        What is read, and what may be held.
    known
        The values of the array, if they are known: nothing is read then.
    chunks
        Where chunks are kept; None: in a cache of its own.
    """
    if known is not None:
        return known.__getitem__
    if chunks is None:
        chunks = PartialChunkCache(LruCache(memory.chunks, lambda chunk: chunk.nbytes), memory.chunks)

    def evaluate(part: Expression) -> Values:
        check_deadline()
        return _Evaluation([part], True, chunks).run()[0]

    def read(box: Box) -> Values:
        whole = select_box(array, box)
        if memory.part is None or whole.size * read_itemsize(whole) <= MOST_ROOMS * memory.part:
            return evaluate(whole)
        values = np.empty(whole.shape, whole.dtype)
        for inside in iterate_boxes(whole, BoxMemory(memory.part, cuts_chunks=True)):
            values[inside] = evaluate(select_box(whole, inside))
        return values

    return read


class _Evaluation:
    """Values of some expressions: each stored array is read once, each shared part is computed once.

    Parameters
    ----------
    expressions
        What is wanted.
    once
        Whether it is a part of a pass over more, of which nothing is to be kept.
    chunks
        Keeps chunks from one box to the next.
    """

    def __init__(
        self, expressions: Sequence[Expression], once: bool = False, chunks: PartialChunkCache | None = None
    ) -> None:
        self.expressions = expressions
        self.once = once
        self.chunks = chunks
        self.values: dict[int, Values] = {}
        """By identity of a node; what was kept is read-only."""
        self.own: set[int] = set()
        """Nodes whose values nobody else has: they may be written over after their last use."""

    def run(self, known: dict[int, Values] | None = None) -> list[Values]:
        """Return the values of the expressions.

        Parameters
        ----------
        known
            Values of nodes by identity, with which everything can be computed; None: what was kept is looked up.
        """
        if known is None:
            self._find_kept()
        else:
            self.values.update(known)
        order = list(iterate_nodes(self.expressions, self.values))
        stored = [node for node in order if isinstance(node, Stored)]
        self.values.update(zip(map(id, stored), _read_stored(stored, self.once, self.chunks), strict=True))
        self.uses = Counter(id(operand) for node in order for operand in node.operands)
        self.uses.update(map(id, self.expressions))
        for node in order:
            if isinstance(node, Constant):
                self.values[id(node)] = node.values
            elif not isinstance(node, Stored):
                self.values[id(node)] = self._compute_node(node)
        return [self.values[id(expression)] for expression in self.expressions]

    def _find_kept(self) -> None:
        """Take the values that were kept; small stored arrays are read whole and kept, if an operation needs them."""
        requested = {id(node) for expression in self.expressions for node in (expression, without_moves(expression))}
        waiting, seen = list(self.expressions), set[int]()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            found = find_values(node)
            if found is None and not self.once and id(node) not in requested and _is_kept_whole(node):
                found = read_and_keep(node)
            if found is not None:
                self.values[id(node)] = found
            else:
                waiting.extend(node.operands)

    def _compute_node(self, node: Expression) -> Values:
        """Return the values of a node, given those of its operands."""
        operands = node.operands
        taken = [self._take(operand) for operand in operands]
        found = self._value(node, taken)
        # A cast to the same type, or the real part, shows the memory of what it is made of.
        shown = [id(one) for one, values in zip(operands, taken, strict=True) if np.may_share_memory(found, values)]
        if found.flags.writeable and all(number in self.own and number not in self.values for number in shown):
            self.own.add(id(node))
        self.own.difference_update(number for number in shown if number in self.values)
        return found

    def _value(self, node: Expression, taken: Sequence[Values]) -> Values:
        match node:
            case Moved():
                return taken[0]
            case Broadcast(_, shape):
                return np.broadcast_to(taken[0], shape)
            case WindowsOf():
                return compute_windows(node, taken[0])
            case Operation():
                left = iter(taken)
                given = [next(left) if isinstance(operand, Expression) else operand for operand in node.given]
                return _compute(node, given, self._find_room(node, taken))
        raise AssertionError(f"unknown node {type(node)}")

    def _find_room(self, node: Operation, taken: Sequence[Values]) -> Values | None:
        """Return the values of an operand that nobody needs any more, if the result fits there."""
        for operand, values in zip(node.operands, taken, strict=True):
            is_free = id(operand) in self.own and id(operand) not in self.values
            if is_free and values.dtype == node.dtype and values.shape == node.shape:
                return values
        return None

    def _take(self, operand: Expression) -> Values:
        """Return the values of an operand, and forget them after their last use."""
        number = id(operand)
        self.uses[number] -= 1
        return self.values[number] if self.uses[number] else self.values.pop(number)


def _compute(node: Operation, given: Sequence[Any], room: Values | None = None) -> Values:
    """Return the values of an operation.

    Parameters
    ----------
    node
        The operation.
    given
        The values of its operands.
    room
        Memory of the size of the result that may be written to.
    """
    with np.errstate(**dict(node.errors)):  # type: ignore[arg-type]
        if node.function == CAST:
            return np.asarray(given[0].astype(node.dtype, given[1], copy=False))
        function = OPERATIONS[node.function]
        if room is not None and isinstance(function, np.ufunc):
            return np.asarray(function(*given, out=room))
        return np.asarray(function(*given))


def _is_kept_whole(node: Expression) -> bool:
    """Return whether a node is a stored array that is kept as a whole."""
    cache = node.context.values
    return is_stored(node) and cache is not None and node.nbytes <= ROOT_BYTES and cache.can_keep(node.nbytes)


def _read_stored(arrays: Sequence[Stored], once: bool, chunks: PartialChunkCache | None = None) -> list[Values]:
    """Return the values of stored arrays, all read at once."""
    groups: list[tuple[ReadContext, list[int]]] = []
    for number, array in enumerate(arrays):
        how = array.context
        for like, members in groups:
            same = how.cache is like.cache and how.sources is like.sources
            if same and how.storage_options == like.storage_options:
                members.append(number)
                break
        else:
            groups.append((how, [number]))
    values: list[Any] = [None] * len(arrays)
    for how, members in groups:
        distinct = {arrays[number].identity: arrays[number] for number in members}
        requests = [array.request for array in distinct.values()]
        names = [array.context.name or "" for array in distinct.values()]
        cache = chunks if once and isinstance(how.cache, PartialChunkCache | None) else how.cache
        if how.sources is not None and how.sources.cache is not None:
            cache = None  # that of the sources
        options, sources, tally = how.storage_options, how.sources, how.tally
        read = read_arrays(requests, names=names, storage_options=options, tally=tally, cache=cache, sources=sources)
        stored = dict(zip(distinct, read, strict=True))
        if len(distinct) < len(members):
            for shared in stored.values():
                shared.flags.writeable = False
        for number in members:
            values[number] = stored[arrays[number].identity]
    return values
