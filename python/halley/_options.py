"""Arguments: those that load a model, and those of one prompt or of each."""
import os
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from halley import _native

T = TypeVar("T")


def of_each(name: str, values: T | Sequence[T | None] | None, kind: type[T], count: int
            ) -> list[T | None]:
    """The argument `name` of each of `count` prompts: one for all, or a list. Raises InputError."""
    if values is None or isinstance(values, kind):
        return [values] * count
    listed = list(cast(Sequence[T | None], values))
    if len(listed) != count:
        raise _native.InputError(f"{name}: expected one, or one for each of the {count} prompts, "
                                 f"got {len(listed)}.")
    return listed


def set_members(options: object, values: dict[str, Any]) -> None:
    """Sets members of a native object; None stands for their defaults. Raises InputError."""
    for name, value in values.items():
        if value is None:
            continue
        try:
            setattr(options, name, value)
        except TypeError:
            default = getattr(options, name)
            expected = "another type" if default is None else type(default).__name__
            raise _native.InputError(f"{name}: expected {expected}, got {value!r}.") from None


def session_options(model: str | os.PathLike[str], **values: Any) -> _native.SessionOptions:
    """The options of a model in a folder."""
    options = _native.SessionOptions()
    set_members(options, {"model": os.fspath(model), **values})
    return options
