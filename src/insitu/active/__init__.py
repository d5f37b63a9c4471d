"""Client and wire format of servers that decode and reduce next to the data."""

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes

if TYPE_CHECKING:
    from insitu.active.answer import answer_array
    from insitu.active.client import Active

__all__ = ["Active", "answer_array"]

# What opens and reads an archive without a server imports none of it.
__getattr__ = lazy_attributes(__name__, {"Active": "insitu.active.client", "answer_array": "insitu.active.answer"})
