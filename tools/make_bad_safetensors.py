#!/usr/bin/env python3
"""Writes testdata/fuzz/safetensors: small good and bad safetensors files, one case each.

    tools/make_bad_safetensors.py [--check]

The files are the same on every run. They seed the fuzzer, and safetensors_test.cc says of each what
message it must give. --check reads them with the Python package `safetensors` as well and fails
where it does not accept or reject as CASES says: those marked STRICTER it accepts, we reject.
"""

import argparse
import json
import pathlib
import struct
import sys

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "fuzz" / "safetensors"
GOOD, BAD, STRICTER = "good", "bad", "stricter"


def pack(header, data=b"", length=None):
    """A file of this header; `length` where the declared length is to differ from the real one."""
    text = header if isinstance(header, bytes) else header.encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype="U8", shape="[1]", offsets="[0,1]", more=""):
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}{more}}}'


def one(data=b"x", **fields):
    """A file of the single tensor "a", one byte unless said otherwise."""
    return pack('{"a":' + entry(**fields) + "}", data)


def two(offsets_a, offsets_b, data, shape_a="[2]", shape_b="[2]"):
    a = entry(shape=shape_a, offsets=offsets_a)
    b = entry(shape=shape_b, offsets=offsets_b)
    return pack(f'{{"a":{a},"b":{b}}}', data)


def typed(dtype, num_elements, num_bytes):
    data = b"\0" * num_bytes
    return one(data, dtype=dtype, shape=f"[{num_elements}]", offsets=f"[0,{num_bytes}]")


def every_dtype():
    sizes = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8,
             "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16,
             "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64,
             "I64": 64, "U64": 64}
    entries, offset = [], 0
    for dtype, bits in sizes.items():
        end = offset + 4 * bits // 8
        entries.append(f'"{dtype}":' + entry(dtype, "[2,2]", f"[{offset},{end}]"))
        offset = end
    return pack("{" + ",".join(entries) + "}", bytes(i % 251 for i in range(offset)))


def many(count):
    entries = (f'"t{i}":' + entry(offsets=f"[{i},{i + 1}]") for i in range(count))
    return pack("{" + ",".join(entries) + "}", b"x" * count)


def index(**weight_map):
    return json.dumps({"weight_map": weight_map, "metadata": {"total_size": 8}}).encode()


A = entry()
CASES = {
    # name: (kind, bytes)
    "good_one": (GOOD, one()),
    "good_two": (GOOD, two("[0,2]", "[2,4]", b"wxyz")),
    "good_two_backwards": (GOOD, two("[2,4]", "[0,2]", b"wxyz")),
    "good_every_dtype": (GOOD, every_dtype()),
    "good_empty": (GOOD, pack("{}")),
    "good_scalar": (GOOD, one(shape="[]")),
    "good_zero_size": (GOOD, two("[0,0]", "[0,2]", b"xy", shape_a="[0,7]")),
    "good_zero_size_last": (GOOD, two("[0,2]", "[2,2]", b"xy", shape_b="[0]")),
    "good_padded": (GOOD, pack('{"a":' + A + "}      ", b"x")),
    "good_metadata": (GOOD, pack('{"__metadata__":{"format":"pt"},"a":' + A + "}", b"x")),
    "good_metadata_last": (GOOD, pack('{"a":' + A + ',"__metadata__":{}}', b"x")),
    "good_unknown_field": (GOOD, one(more=',"extra":{"x":[1,2.5]}')),
    "good_escaped_name": (GOOD, pack('{"\\u00e9\\u0000\\"":' + A + "}", b"x")),
    "good_line_breaks": (GOOD, pack('{\n "a" : \t' + A + "\n}", b"x")),
    "good_f4_even": (GOOD, typed("F4", 4, 2)),
    "good_many_tiny": (GOOD, many(500)),
    # The length and the text.
    "file_empty": (BAD, b""),
    "file_7_bytes": (BAD, b"\x02\0\0\0\0\0\0"),
    "header_0_bytes": (BAD, pack("")),
    "header_length_above_limit": (BAD, pack("{}", length=100_000_001)),
    "header_length_above_file": (BAD, pack("{}", length=3)),
    "header_length_max": (BAD, pack("{}", length=2**64 - 1)),
    "header_length_sign_bit": (BAD, pack("{}", length=2**63)),
    "header_length_wraps": (BAD, pack("{}", length=2**64 - 8)),
    "header_not_utf8": (BAD, pack(b'{"\xff":' + A.encode() + b"}", b"x")),
    "header_not_json": (BAD, pack("{hello}")),
    "header_array": (BAD, pack("[]")),
    "header_cut": (BAD, pack('{"a":{"dtype":"U8"')),
    "header_cut_at_brace": (BAD, pack('{"a":{"dtype":"U8"}')),
    "header_nul_behind": (BAD, pack('{"a":' + A + "}\0", b"x")),
    "header_nul_inside": (BAD, pack("{}\0{}")),
    "header_two_documents": (BAD, pack("{}{}")),
    "header_space_before": (STRICTER, pack(" {}")),
    "header_tab_behind": (STRICTER, pack("{}\t")),
    "header_line_break_behind": (STRICTER, pack("{}\n")),
    "header_byte_order_mark": (BAD, pack(b"\xef\xbb\xbf{}")),
    "header_lone_surrogate": (BAD, pack('{"\\ud800":' + A + "}", b"x")),
    "header_depth_bomb": (BAD, pack('{"a":' + "[" * 5000 + "]" * 5000 + "}")),
    "header_depth_bomb_object": (BAD, pack('{"a":' * 5000 + "1" + "}" * 5000)),
    "header_depth_bomb_extra": (BAD, one(more=',"x":' + "[" * 500 + "]" * 500)),
    "duplicate_tensor": (STRICTER, pack('{"a":' + A + ',"a":' + A + "}", b"x")),
    "duplicate_tensor_escaped": (STRICTER, pack('{"a":' + A + ',"\\u0061":' + A + "}", b"x")),
    "duplicate_field": (BAD, one(more=',"shape":[1]')),
    "duplicate_metadata": (BAD, pack('{"__metadata__":{},"__metadata__":{},"a":' + A + "}", b"x")),
    "duplicate_metadata_key": (STRICTER, pack('{"__metadata__":{"k":"1","k":"2"}}')),
    # Metadata and entries.
    "metadata_not_an_object": (BAD, pack('{"__metadata__":["x"]}')),
    "metadata_null": (STRICTER, pack('{"__metadata__":null}')),
    "metadata_number": (BAD, pack('{"__metadata__":{"k":1}}')),
    "metadata_nested": (BAD, pack('{"__metadata__":{"k":{"x":"y"}}}')),
    "entry_number": (BAD, pack('{"a":1}')),
    "entry_array": (STRICTER, pack('{"a":["U8",[1],[0,1]]}', b"x")),
    "entry_empty": (BAD, pack('{"a":{}}')),
    "dtype_missing": (BAD, pack('{"a":{"shape":[1],"data_offsets":[0,1]}}', b"x")),
    "dtype_unknown": (BAD, one(dtype="U7")),
    "dtype_lower_case": (BAD, one(dtype="u8")),
    "dtype_number": (BAD, pack('{"a":{"dtype":3,"shape":[1],"data_offsets":[0,1]}}', b"x")),
    "shape_missing": (BAD, pack('{"a":{"dtype":"U8","data_offsets":[0,1]}}', b"x")),
    "shape_number": (BAD, one(shape="1")),
    "dim_negative": (BAD, one(shape="[-1]")),
    "dim_minus_zero": (BAD, one(b"", shape="[-0]", offsets="[0,0]")),
    "dim_float": (BAD, one(shape="[1.0]")),
    "dim_1e30": (BAD, one(shape="[1e30]")),
    "dim_string": (BAD, one(shape='["1"]')),
    "dim_null": (BAD, one(shape="[null]")),
    "dim_2_to_63": (BAD, one(shape="[9223372036854775808]")),
    "dim_2_to_63_times_0": (STRICTER, one(b"", shape="[0,9223372036854775808]", offsets="[0,0]")),
    "dim_2_to_64": (BAD, one(shape="[18446744073709551616]")),
    "rank_65": (STRICTER, one(shape="[" + ",".join(["1"] * 65) + "]")),
    "size_overflow": (BAD, one(shape="[4294967296,4294967296,4294967296]")),
    "size_wraps_to_1_byte": (BAD, one(dtype="F32", shape="[4611686018427387905]")),
    "bits_overflow": (BAD, one(dtype="F64", shape="[2305843009213693952]")),
    "f4_odd": (BAD, typed("F4", 3, 2)),
    "f6_odd": (BAD, typed("F6_E2M3", 3, 3)),
    # Offsets.
    "offsets_missing": (BAD, pack('{"a":{"dtype":"U8","shape":[1]}}', b"x")),
    "offsets_three": (BAD, one(offsets="[0,1,2]")),
    "offsets_one": (BAD, one(offsets="[0]")),
    "offsets_negative": (BAD, one(offsets="[-1,0]")),
    "offsets_float": (BAD, one(offsets="[0.0,1.0]")),
    "offsets_backwards": (BAD, one(offsets="[1,0]")),
    "offsets_huge": (BAD, one(offsets="[0,18446744073709551615]")),
    "offsets_above_file": (BAD, one(shape="[2]", offsets="[0,2]")),
    "size_too_small": (BAD, one(b"xy", shape="[1]", offsets="[0,2]")),
    "size_too_large": (BAD, one(b"xy", shape="[3]", offsets="[0,2]")),
    "hole": (BAD, two("[0,2]", "[3,5]", b"vwxyz")),
    "hole_at_start": (BAD, one(b"xy", offsets="[1,2]")),
    "overlap": (BAD, two("[0,2]", "[1,3]", b"xyz")),
    "overlap_same": (BAD, two("[0,2]", "[0,2]", b"xy")),
    "zero_size_inside": (BAD, two("[0,2]", "[1,1]", b"xy", shape_b="[0]")),
    "trailing_bytes": (BAD, pack('{"a":' + A + "}", b"xPK")),
    "trailing_bytes_no_tensor": (BAD, pack("{}", b"x")),
    "data_cut": (BAD, two("[0,2]", "[2,4]", b"xyz")),
    # Indices of shards, which the fuzz target reads too. As weights they are rejected.
    "index_two_shards": (BAD, index(a="model-00001-of-00002.safetensors",
                                    b="model-00002-of-00002.safetensors")),
    "index_path": (BAD, index(a="../model.safetensors")),
    "index_other_kind": (BAD, index(a="pytorch_model.bin")),
}


def check_reference():
    """Number of files of which the reference implementation says something else than CASES."""
    import safetensors
    num_differences = 0
    for name, (kind, content) in CASES.items():
        try:
            safetensors.deserialize(content)
            accepts = True
        except safetensors.SafetensorError:
            accepts = False
        if accepts != (kind != BAD):
            print(f"{name}: reference {'accepts' if accepts else 'rejects'}, table says {kind}")
            num_differences += 1
    stricter = [name for name, (kind, _) in CASES.items() if kind == STRICTER]
    print(f"safetensors {safetensors.__version__}: {len(CASES)} files, {num_differences} "
          f"differences; stricter than the reference: {', '.join(stricter)}")
    return num_differences


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the Python package")
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path in FOLDER.glob("*.safetensors"):
        if path.stem not in CASES:
            path.unlink()
    for name, (_, content) in CASES.items():
        (FOLDER / f"{name}.safetensors").write_bytes(content)
    return 1 if arguments.check and check_reference() else 0


if __name__ == "__main__":
    sys.exit(main())
