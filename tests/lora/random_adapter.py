"""LoRA adapters of random numbers, as PEFT writes them."""
import array
import json
import os
import random
import struct

RANK = 4


def shapes_of(model):
    """The shapes of a checkpoint's tensors by name."""
    with open(os.path.join(model, "model.safetensors"), "rb") as file:
        length, = struct.unpack("<Q", file.read(8))
        return {name: entry["shape"] for name, entry in json.loads(file.read(length)).items()
                if name != "__metadata__"}


def write_adapter(model, folder, seed):
    """Writes an adapter for the queries and values of all layers of `model` into `folder`."""
    numbers = random.Random(seed)
    header, data = {}, b""
    for name, (num_outputs, *inputs) in shapes_of(model).items():
        if not name.endswith(("q_proj.weight", "v_proj.weight")):
            continue
        for part, shape in (("lora_A", [RANK, *inputs]), ("lora_B", [num_outputs, RANK])):
            values = array.array("f", (numbers.gauss(0, 0.15) for _ in range(shape[0] * shape[1])))
            end = len(data) + 4 * len(values)
            header[f"base_model.model.{name.removesuffix('weight')}{part}.weight"] = {
                "dtype": "F32", "shape": shape, "data_offsets": [len(data), end]}
            data += values.tobytes()
    os.makedirs(folder, exist_ok=True)
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "adapter_model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    with open(os.path.join(folder, "adapter_config.json"), "w", encoding="utf-8") as file:
        json.dump({"peft_type": "LORA", "r": RANK, "lora_alpha": 8,
                   "target_modules": ["q_proj", "v_proj"]}, file)
    return str(folder)
