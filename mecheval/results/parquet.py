"""Tables as Parquet files, written whole or not at all."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import InvalidInput, StoreError
from mecheval.runs.files import TEMPORARY, check_name, sync

if TYPE_CHECKING:
    from pandas import DataFrame

Lines = list[dict[str, Any]]


def write_parquet(table: "DataFrame", path: Path) -> None:
    """Write a table completely or not at all."""
    import duckdb

    check_name(path)
    temporary = path.with_name(path.name + TEMPORARY)
    name = duckdb_name(temporary)
    try:
        duckdb.from_df(table).write_parquet(name, compression="zstd")
        temporary.replace(path)
        sync(path.parent)
    except (duckdb.Error, OSError) as error:
        with suppress(OSError):  # nothing was written, or nothing can be removed
            temporary.unlink(missing_ok=True)
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise StoreError(f"{path} cannot be written: {reason}") from error


def read_parquet(path: Path) -> Lines:
    """Read the lines of a table, with None for missing values."""
    import duckdb

    name = duckdb_name(path)
    try:
        table = duckdb.from_parquet(name)
        return [dict(zip(table.columns, line, strict=True)) for line in table.fetchall()]
    except (duckdb.Error, OSError) as error:
        raise StoreError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def duckdb_name(path: Path) -> str:
    """Return a path as text; refuse one that is not UTF-8, which DuckDB cannot open."""
    try:
        return path.as_posix().encode().decode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{str(path)!r} is not valid UTF-8; use another name") from error
