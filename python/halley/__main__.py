"""The program: `python -m halley serve MODEL` runs what `halley serve MODEL` runs."""
import os
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Becomes the program that the package holds, with the same arguments."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "halley")
    os.execv(program, ["halley", *sys.argv[1:]])


if __name__ == "__main__":
    main()
