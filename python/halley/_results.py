"""Results of measurements as tables."""
import dataclasses
import importlib
from collections.abc import Sequence
from typing import Any


def to_pandas(results: Sequence[Any] | Any) -> Any:
    """A pandas.DataFrame with a row for each result, or for one alone; members of members have
    columns like "kl_divergence.value".

    `results` are the dataclasses of this package: those of halley.eval, QuantizedLayer,
    RequestOutput. Raises ImportError where pandas is not installed.
    """
    pandas = importlib.import_module("pandas")
    rows: list[Any] = [results] if dataclasses.is_dataclass(results) else list(results)
    return pandas.json_normalize([dataclasses.asdict(row) for row in rows])
