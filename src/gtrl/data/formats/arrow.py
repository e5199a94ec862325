"""Arrow and parquet columns as NumPy arrays. Sizes are checked against those of the files while they are read."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gtrl.data.formats.flat import Layout
from gtrl.data.formats.limits import MAX_DEPTH, Budget, check_names, import_extra, readable
from gtrl.errors import DataError

BATCH_ROWS = 65_536  # rows of a parquet file that are read at a time
NOT_NUMBERS = "does not hold real numbers"


def leaves(name: str, array: Any) -> Iterator[tuple[str, Any]]:
    """Yields the columns of a nested structure with their names, which are joined by slashes."""
    import pyarrow as pa

    if not pa.types.is_struct(array.type):
        yield name, array
        return
    for index, inner in enumerate(array.type):
        yield from leaves(f"{name}/{inner.name}", array.field(index))


def to_numpy(array: Any, depth: int = 0) -> np.ndarray | str:
    """Converts a column to an array, lists to further axes, what is missing to NaN; or says why it cannot be."""
    import pyarrow as pa

    kind = array.type
    if pa.types.is_dictionary(kind):
        return to_numpy(array.dictionary_decode(), depth)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists_to_numpy(array, depth)
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    if not (
        pa.types.is_floating(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        return NOT_NUMBERS
    if array.null_count and not pa.types.is_floating(array.type):
        array = array.cast(pa.float64())
    return array.to_numpy(zero_copy_only=False)


def _lists_to_numpy(array: Any, depth: int) -> np.ndarray | str:
    import pyarrow.compute as pc

    there = array.is_valid().to_numpy(zero_copy_only=False)
    if depth > MAX_DEPTH or (len(array) and not there.any()):
        return "has rows without a value"
    lists = array.drop_null()
    sizes = pc.list_value_length(lists).to_numpy(zero_copy_only=False)  # pyright: ignore[reportAttributeAccessIssue]
    if len(sizes) and (sizes != sizes[0]).any():
        return "has rows of different lengths"
    inner = to_numpy(lists.flatten(), depth + 1)
    if isinstance(inner, str):
        return inner
    width = int(sizes[0]) if len(sizes) else max(getattr(array.type, "list_size", 0), 0)
    values = inner.reshape(len(lists), width, *inner.shape[1:])
    if there.all():
        return values
    filled = np.full((len(array), *values.shape[1:]), np.nan, np.result_type(values, np.float32))
    filled[there] = values
    return filled


# --- Arrow files (Minari) ---


def _batches(path: Path) -> Iterator[Any]:
    ipc = import_extra("pyarrow.ipc", "minari", "reading Arrow files")
    with ipc.open_file(str(path)) as file:
        for index in range(file.num_record_batches):
            batch = file.get_batch(index)
            batch.validate(full=True)  # offsets of a damaged file may lie outside of its buffers
            yield batch


def arrow_layouts(files: Sequence[Path]) -> dict[str, Layout | str]:
    """Returns the layouts of the columns in some files."""
    found: dict[str, Layout | str] = {}
    with readable(files[0], "Arrow file"):
        for batch in _batches(files[0]):
            for column in batch.schema.names:
                for name, array in leaves(column, batch.column(column)):
                    values = to_numpy(array)
                    found[name] = values if isinstance(values, str) else (values.shape, values.dtype)
    return found


def arrow_rows(files: Sequence[Path], wanted: Collection[str], budget: Budget) -> dict[str, np.ndarray]:
    """Reads some columns of files, one after the other."""
    parts: dict[str, list[np.ndarray]] = {name: [] for name in wanted}
    columns = {name.partition("/")[0] for name in wanted}
    for path in files:
        with readable(path, "Arrow file"):
            for batch, column in itertools.product(_batches(path), columns):
                if column not in batch.schema.names:
                    raise DataError(f"{path} has no column {column!r}.")
                for name, array in leaves(column, batch.column(column)):
                    if name in parts:
                        parts[name].append(_numbers(path, name, array, budget))
    return _joined(parts, files[0] if files else "an episode")


def _numbers(path: Path, name: str, array: Any, budget: Budget) -> np.ndarray:
    budget.claim(array.nbytes)
    values = to_numpy(array)
    if isinstance(values, str):
        raise DataError(f"{path}: the column {name!r} {values}.")
    return values


def _joined(parts: dict[str, list[np.ndarray]], where: Path | str) -> dict[str, np.ndarray]:
    for name, found in parts.items():
        if not found:
            raise DataError(f"{where} has no rows of {name!r}.")
        if len({part.shape[1:] for part in found}) > 1:
            raise DataError(f"{where}: the column {name!r} has rows of different lengths.")
    return {name: np.concatenate(found) for name, found in parts.items()}


# --- parquet files (tables, LeRobot) ---


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    with (
        readable(path, "parquet file"),
        import_extra("pyarrow.parquet", "lerobot", "reading parquet").ParquetFile(str(path)) as file,
    ):
        check_names(path, file.schema_arrow.names)
        yield file


def parquet_layouts(path: Path) -> dict[str, Layout | str]:
    """Returns the layouts of a file's columns; the number of elements of a list is that of the first row."""
    found: dict[str, Layout | str] = {}
    with _parquet(path) as file:
        rows = file.metadata.num_rows
        budget = Budget(path, path.stat().st_size)
        first = next(file.iter_batches(batch_size=1), None)
        if first is None or not len(first):
            raise DataError(f"{path} has no rows.")
        for column in first.schema.names:
            budget.claim(first.column(column).nbytes)
            values = to_numpy(first.column(column))
            found[column] = values if isinstance(values, str) else ((rows, *values.shape[1:]), values.dtype)
    return found


def parquet_rows(files: Sequence[Path], wanted: Collection[str], labels: Collection[str] = ()) -> dict[str, np.ndarray]:
    """Reads some columns of files, one after the other. Those in `labels` may also hold text or times."""
    budget = Budget(files[0].parent if len(files) > 1 else files[0], sum(path.stat().st_size for path in files))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in wanted}
    for path in files:
        with _parquet(path) as file:
            missing = [name for name in wanted if name not in file.schema_arrow.names]
            if missing:
                raise DataError(f"{path} has no column {missing[0]!r}.")
            groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
            # Each row needs at least a byte per column in memory, however well it is compressed.
            Budget(path, path.stat().st_size).claim(sum(group.num_rows for group in groups) * len(parts))
            for batch in file.iter_batches(BATCH_ROWS, columns=list(wanted)):
                for name in wanted:
                    array = batch.column(name)
                    parts[name].append(_label(array) if name in labels else _numbers(path, name, array, budget))
    return _joined(parts, files[0])


def _label(array: Any) -> np.ndarray:
    """Converts a column that names episodes or orders rows: to numbers, times or text. NaN, NaT or "" is missing."""
    import pyarrow as pa

    values = to_numpy(array)
    if not isinstance(values, str) and values.ndim == 1:
        return values
    if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type) or pa.types.is_duration(array.type):
        return array.to_numpy(zero_copy_only=False)
    return np.asarray(["" if value is None else str(value) for value in array.to_pylist()])
