"""Tables as Parquet files, by DuckDB."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mecheval.core.errors import StoreError
from mecheval.runs.files import TEMPORARY, sync

if TYPE_CHECKING:
    from pandas import DataFrame


def write_parquet(table: "DataFrame", path: Path) -> None:
    """Whole or not at all."""
    import duckdb

    temporary = path.with_name(path.name + TEMPORARY)
    try:
        duckdb.from_df(table).write_parquet(str(temporary), compression="zstd")
        temporary.replace(path)
        sync(path.parent)
    except (duckdb.Error, OSError) as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(f"{path} cannot be written: {error}") from error


def read_parquet(path: Path) -> list[dict[str, Any]]:
    """Its lines, with None where there is nothing."""
    import duckdb

    try:
        found = duckdb.from_parquet(str(path))
        columns = found.columns
        return [dict(zip(columns, line, strict=True)) for line in found.fetchall()]
    except (duckdb.Error, OSError) as error:
        raise StoreError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
