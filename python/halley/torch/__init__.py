"""PyTorch models in low precision, on Halley's kernels.

    from transformers import AutoModelForCausalLM
    from halley.torch import Int4WeightOnlyConfig, quantize_
    model = AutoModelForCausalLM.from_pretrained("models/demo-21m")
    quantize_(model, Int4WeightOnlyConfig(group_size=128))

Configurations have the names of TorchAO. docs/torch.md describes them.
"""
from halley.torch.config import (Config, Float8DynamicActivationFloat8WeightConfig,
                                 Int4WeightOnlyConfig, Int8DynamicActivationInt4WeightConfig,
                                 Int8DynamicActivationInt8WeightConfig, Int8WeightOnlyConfig,
                                 NestedFpConfig, W4AxConfig)
from halley.torch.linear import QuantizedLinear
from halley.torch.parallel import ColwiseParallel, RowwiseParallel
from halley.torch.quantize import quantize_, set_precision

__all__ = [
    "ColwiseParallel", "Config", "Float8DynamicActivationFloat8WeightConfig",
    "Int4WeightOnlyConfig", "Int8DynamicActivationInt4WeightConfig",
    "Int8DynamicActivationInt8WeightConfig", "Int8WeightOnlyConfig", "NestedFpConfig",
    "QuantizedLinear", "RowwiseParallel", "W4AxConfig", "quantize_", "set_precision",
]
