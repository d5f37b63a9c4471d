"""Read, write and append references in Icechunk repositories."""

from insitu.references.icechunk.repository import is_repository, repository_exists
from insitu.references.icechunk.repository_appender import append_icechunk
from insitu.references.icechunk.repository_reader import has_version, open_icechunk
from insitu.references.icechunk.repository_writer import write_icechunk

__all__ = ["append_icechunk", "has_version", "is_repository", "open_icechunk", "repository_exists", "write_icechunk"]
