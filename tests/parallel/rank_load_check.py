"""How much of a checkpoint each rank reads while it loads its share.

    rank_load_check.py HALLEY_BINARY SOURCE_DIR [--out bench/results/rank_load.json]

Makes checkpoints of random weights (a layer of Llama-3 8B), gives each rank of a job a copy of its
own that is not in the page cache, and counts the pages of that copy which are there when all ranks
have loaded: `touched_bytes` with maps that the system does not read ahead in (by LD_PRELOAD), and
`read_bytes` as it is. Needs MPI, cc, and 3 GB in --folder on a disk.
"""
import argparse
import array
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

from mpi_processes import ENVIRONMENT, has_mpi

D, H, J, HIDDEN, F, V, NUM_LAYERS, GROUP = 128, 32, 8, 4096, 14336, 8192, 1, 128
BLOCK_BYTES = 1 << 20
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN,
          "num_hidden_layers": NUM_LAYERS, "intermediate_size": F, "num_attention_heads": H,
          "num_key_value_heads": J, "head_dim": D, "vocab_size": V, "hidden_act": "silu",
          "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
          "torch_dtype": "float16"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "lm_head": False}
FORMATS = {"f16": None, "gptq": {**GPTQ, "desc_act": False},
           "gptq act-order": {**GPTQ, "desc_act": True}}
# Maps of checkpoints are read page by page.
NO_READ_AHEAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/mman.h>
void* mmap64(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  void* (*next)(void*, size_t, int, int, int, off_t) = dlsym(RTLD_NEXT, "mmap64");
  void* data = next(address, size, protection, flags, file, offset);
  if (data != MAP_FAILED && file >= 0 && size > (64 << 20)) madvise(data, size, MADV_RANDOM);
  return data;
}
void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  return mmap64(address, size, protection, flags, file, offset);
}
"""


def linear_layers():
    """(name, outputs, inputs) of a decoder's layers."""
    for i in range(NUM_LAYERS):
        prefix = f"model.layers.{i}."
        for name, n in ("q", H * D), ("k", J * D), ("v", J * D):
            yield f"{prefix}self_attn.{name}_proj", n, HIDDEN
        yield f"{prefix}self_attn.o_proj", HIDDEN, H * D
        for name in "gate", "up":
            yield f"{prefix}mlp.{name}_proj", F, HIDDEN
        yield f"{prefix}mlp.down_proj", HIDDEN, F


def dense_tensors():
    """{name: shape} of what stays in full precision."""
    tensors = {"model.embed_tokens.weight": [V, HIDDEN], "lm_head.weight": [V, HIDDEN],
               "model.norm.weight": [HIDDEN]}
    for i in range(NUM_LAYERS):
        for norm in "input_layernorm", "post_attention_layernorm":
            tensors[f"model.layers.{i}.{norm}.weight"] = [HIDDEN]
    return tensors


def f16_block(generator):
    """Random values of f16 in [2^-7, 2^-6), of both signs."""
    values = array.array("H", generator.randbytes(BLOCK_BYTES))
    return array.array("H", (value & 0x83FF | 0x2000 for value in values)).tobytes()


def act_order(generator, num_inputs):
    groups = [k // GROUP for k in range(num_inputs)]
    generator.shuffle(groups)
    return array.array("i", groups).tobytes()


def tensors_of(quant, generator):
    """{name: (dtype, shape, block)}: a tensor's bytes are repetitions of its block."""
    f16, random_bytes = f16_block(generator), generator.randbytes(BLOCK_BYTES)
    tensors = {name: ("F16", shape, f16) for name, shape in dense_tensors().items()}
    for name, n, k in linear_layers():
        if quant is None:
            tensors[name + ".weight"] = ("F16", [n, k], f16)
            continue
        tensors[name + ".qweight"] = ("I32", [k // 8, n], random_bytes)
        tensors[name + ".qzeros"] = ("I32", [k // GROUP, n // 8], random_bytes)
        tensors[name + ".scales"] = ("F16", [k // GROUP, n], f16)
        if quant["desc_act"]:
            tensors[name + ".g_idx"] = ("I32", [k], act_order(generator, k))
    return tensors


def write_checkpoint(folder, quant):
    os.mkdir(folder)
    config = CONFIG if quant is None else {**CONFIG, "quantization_config": quant}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    tensors = tensors_of(quant, random.Random(1))
    header, end = {}, 0
    for name, (dtype, shape, _) in tensors.items():
        begin, end = end, end + math.prod(shape) * {"F16": 2, "I32": 4}[dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, (_, _, block) in tensors.items():
            begin, end = header[name]["data_offsets"]
            for position in range(begin, end, len(block)):
                file.write(block[:end - position])


def weights_of(folder):
    return os.path.join(folder, "model.safetensors")


def cached_bytes(folder):
    out = subprocess.run(["fincore", "--bytes", "--noheadings", "--output", "RES",
                          weights_of(folder)], capture_output=True, text=True, check=True).stdout
    return int(out)


def drop_from_cache(folder):
    with open(weights_of(folder), "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_bytes(folder) != 0:
        raise SystemExit(f"{folder} stays in the page cache: use --folder on a disk")


def measure(halley, copies, preload=None):
    """Bytes of its copy that each rank has read."""
    for copy in copies:
        drop_from_cache(copy)
    command = ["mpirun", "--bind-to", "none"]
    for copy in copies:
        command += [":"] if copy != copies[0] else []
        command += ["-x", f"LD_PRELOAD={preload}"] if preload else []
        command += ["-n", "1", halley, "generate", copy, "--prompt-ids", "1", "--max-tokens", "1",
                    "--temperature", "0", "--max-model-len", "64"]
    subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True)
    return [cached_bytes(copy) for copy in copies]


def make_preload(folder):
    library = os.path.join(folder, "no_read_ahead.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library, "-ldl"], text=True,
                   input=NO_READ_AHEAD, check=True)
    return library


def read_ahead_bytes(folder):
    device = os.stat(folder).st_dev
    path = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
    with open(path, encoding="utf-8") as file:
        return 1024 * int(file.read())


def planned(halley, folder, num_ranks):
    out = subprocess.run([halley, "inspect", folder, "--json", "--tensor-parallel-size",
                          str(num_ranks)], capture_output=True, text=True, check=True).stdout
    plan = json.loads(out)
    return [rank["stored_bytes"] for rank in plan.get("ranks", [plan])]


def measure_format(halley, folder, quant):
    result = []
    original = os.path.join(folder, "0")
    write_checkpoint(original, quant)
    copies = [original]
    preload = make_preload(folder)
    for num_ranks in 1, 2, 4:
        while len(copies) < num_ranks:
            copies.append(os.path.join(folder, str(len(copies))))
            shutil.copytree(original, copies[-1])
        result.append({"num_ranks": num_ranks,
                       "file_bytes": os.path.getsize(weights_of(original)),
                       "share_bytes": planned(halley, original, num_ranks),
                       "touched_bytes": measure(halley, copies, preload),
                       "read_bytes": measure(halley, copies)})
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("halley")
    parser.add_argument("source")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    sys.path.insert(0, os.path.join(sys.argv[2] if len(sys.argv) > 2 else ".", "tests", "serve"))
    from result_file import add_options, print_result  # pylint: disable=import-outside-toplevel
    add_options(parser)
    options = parser.parse_args()
    if not has_mpi(options.halley):
        return 1
    result = {"read_ahead_bytes": read_ahead_bytes(options.folder)}
    for name, quant in FORMATS.items():
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            result[name] = measure_format(os.path.abspath(options.halley), folder, quant)
    print_result(result, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
