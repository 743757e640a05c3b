"""The arguments that load a model."""
import os
from typing import Any

from halley import _native


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
