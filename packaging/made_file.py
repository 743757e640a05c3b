"""A file that a script makes, kept in the repository: compared, or written with --write."""

import os
import sys


def check_or_write(path, text, source):
    """Writes `text` where --write was given, else ends with 1 where the file differs from it.
    `source` is what the file is made from."""
    if "--write" in sys.argv[1:]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    with open(path, encoding="utf-8") as file:
        if file.read() != text:
            sys.exit(f"{path}: differs from {source}. Run packaging/"
                     f"{os.path.basename(sys.argv[0])} --write.")
