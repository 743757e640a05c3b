#!/usr/bin/env python3
"""Writes testdata/quantized: small Llamas in every quantized layout that Halley loads, with the
hash of the dequantized weights and the logits.

The packages golden/ next to this file are a second implementation of the formats, made from their
descriptions and not from Halley's code: each case is written, read back by a reader that shares no
packing code with the writer, and compared. Needs NumPy. Run from anywhere:
  tools/make_golden.py [--seed 3] [--out FOLDER] [--only NAME ...]
"""

import argparse
import pathlib

from golden import bad_cases, bad_compressed
from golden.cases_float8 import COMPRESSED, FMPQ, FP8, QOQ
from golden.cases_gptq import AWQ, GPTQ

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "quantized"


def main():
    parser = argparse.ArgumentParser(description="Writes testdata/quantized.")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=FOLDER)
    parser.add_argument("--only", nargs="*", default=[], help="names of cases")
    options = parser.parse_args()
    total = 0
    for case in GPTQ + AWQ + FP8 + COMPRESSED + QOQ + FMPQ:
        if not options.only or case.name in options.only:
            size = case.write(options.out, options.seed)
            total += size
            print(f"{case.name:32} {size:8}", flush=True)
    if not options.only:
        sections = bad_cases.SECTIONS + bad_compressed.SECTIONS
        count, size = bad_cases.write_bad_cases(options.out, sections)
        total += size
        print(f"{f'bad_cases.json: {count} cases':32} {size:8}")
    print(f"{'total':32} {total:8}")


if __name__ == "__main__":
    main()
