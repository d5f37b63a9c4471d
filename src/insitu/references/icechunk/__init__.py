"""Read, write and append references in Icechunk repositories."""

from typing import TYPE_CHECKING

from insitu.forking import lazy_attributes
from insitu.references.icechunk.repository import is_repository, repository_exists

if TYPE_CHECKING:
    from insitu.references.icechunk.repository_appender import append_icechunk
    from insitu.references.icechunk.repository_reader import has_version, open_icechunk
    from insitu.references.icechunk.repository_writer import write_icechunk

__all__ = ["append_icechunk", "has_version", "is_repository", "open_icechunk", "repository_exists", "write_icechunk"]

# Whether there is a repository is asked of every folder.
__getattr__ = lazy_attributes(
    __name__,
    {
        "append_icechunk": "insitu.references.icechunk.repository_appender",
        "has_version": "insitu.references.icechunk.repository_reader",
        "open_icechunk": "insitu.references.icechunk.repository_reader",
        "write_icechunk": "insitu.references.icechunk.repository_writer",
    },
)
