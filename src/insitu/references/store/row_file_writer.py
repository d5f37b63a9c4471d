"""Write Parquet files of a store, in groups of rows and pages, and describe them for its root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from insitu.references.store.row_file import ROWS_PER_GROUP, digest, footer_bytes, group_sections

__all__ = ["PAGE_ROWS", "RowFileWriter", "describe_file"]

PAGE_ROWS = 1 << 10
"""Rows of a page, which is loaded alone when few rows of its group are needed.

1,000 random chunks of 10 million take 0.10 s of processor with pages of 256 or 1,024 rows and 0.39 s
with 4,096; pages of 256 rows take 5.8 bytes a chunk, of 1,024 rows 4.2 (docs/benchmarks.md).
"""


def describe_file(file: Any) -> dict[str, Any]:
    """Return the root's entry about a file that was just written: sizes and checksums."""
    file.flush()
    size = file.tell()
    with open(file.fileno(), "rb", closefd=False) as reopened:
        reopened.seek(size - 8)
        begin = size - footer_bytes(reopened.read(8))
        meta = pq.read_metadata(reopened)
        groups = [group_sections(meta, group) for group in range(meta.num_row_groups)]
        sums = [[digest(_read_section(reopened, section)) for section in sections] for sections in groups]
        if groups:  # the page index, if there is one, lies between the rows and the footer
            begin = max(end for _, end, _ in groups[-1])
        footer = size - begin
        reopened.seek(begin)
        checksum = digest(reopened.read(footer))
    file.seek(size)
    return {"bytes": size, "footer": footer, "checksum": checksum, "group_checksums": sums}


def _read_section(file: Any, section: tuple[int, int, set[str]]) -> bytes:
    file.seek(section[0])
    data: bytes = file.read(section[1] - section[0])
    return data


class RowFileWriter:
    """Writes one file of rows; blocks of any size come out as groups of `ROWS_PER_GROUP` rows.

    Parameters
    ----------
    file
        The file to write to.
    schema
        An Arrow schema.
    delta
        Columns whose values change little from row to row: written as differences.
    page_rows
        Rows of a page that can be read alone, by the page index; None: no page index.
    """

    def __init__(self, file: Any, schema: Any, delta: Sequence[str] = (), page_rows: int | None = None) -> None:
        plain = [name for name in schema.names if name not in delta]
        self._schema = schema
        # A page ends with the batch of rows that makes it larger than `data_page_size`. Statistics
        # would be in the page index too: twice the bytes, which every reader would fetch.
        pages: dict[str, Any] = (
            {"data_page_size": 1 << 20, "write_statistics": list(delta) or False}
            if page_rows is None
            else {"data_page_size": 1, "write_batch_size": page_rows, "write_page_index": True,
                  "write_statistics": False}
        )  # fmt: skip
        self._writer = pq.ParquetWriter(
            file, schema, compression="zstd", use_dictionary=plain, write_page_checksum=True,
            column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED"), **pages,
        )  # fmt: skip
        self._waiting: list[Any] = []
        self._rows = 0
        self.rows = 0
        """Rows added so far."""

    def add(self, columns: Mapping[str, Any]) -> None:
        """Add rows."""
        batch = pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)
        self.rows += batch.num_rows
        while batch.num_rows:
            take = min(batch.num_rows, ROWS_PER_GROUP - self._rows)
            self._waiting.append(batch.slice(0, take))
            self._rows += take
            batch = batch.slice(take)
            if self._rows == ROWS_PER_GROUP:
                self._flush()

    def _flush(self) -> None:
        if self._waiting:
            # Joined, because a page ends where a block ends.
            table = pa.Table.from_batches(self._waiting, self._schema).combine_chunks()
            self._writer.write_table(table, row_group_size=ROWS_PER_GROUP)
        self._waiting, self._rows = [], 0

    def close(self) -> None:
        """Write what is left, and the footer."""
        self._flush()
        self._writer.close()

    def abandon(self) -> None:
        """Release the file after an error; has no effect after `close`."""
        self._writer.close()
