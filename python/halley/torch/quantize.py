"""quantize_(): from nn.Linear to QuantizedLinear, in place."""
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn

from halley import _native
from halley.torch.config import AX_BLOCK, Config, W4AxConfig
from halley.torch.linear import QuantizedLinear
from halley.torch.ops import memory_of

Filter = Callable[[nn.Module, str], bool]


def quantize_(model: nn.Module, config: Config, filter_fn: Filter | None = None) -> None:
    """Replaces every nn.Linear in `model` by a QuantizedLinear whose weight is rounded as `config`
    says. `filter_fn(module, name)` chooses among them; None: all.

    Weights on the meta device give modules without contents, for load_state_dict(). Raises
    InputError for a model without such layers, weights that are not finite, and layers that the
    configuration does not fit.
    """
    if type(model) is nn.Linear:
        raise _native.InputError("quantize_: expected a module that holds nn.Linear, got one. Put "
                                 "it into nn.Sequential.")
    # Subclasses of nn.Linear have uses of their own for their weights.
    layers = {name: module for name, module in model.named_modules() if type(module) is nn.Linear}
    chosen = {name: module for name, module in layers.items()
              if filter_fn is None or filter_fn(module, name)}
    if not chosen:
        raise _native.InputError("quantize_: expected a module with nn.Linear layers that "
                                 f"filter_fn chooses, got none of {len(layers)}.")
    inputs = {}
    has_values = not any(layer.weight.is_meta for layer in chosen.values())
    if isinstance(config, W4AxConfig) and config.calibration is not None and has_values:
        inputs = _record_inputs(model, chosen, config.calibration)
    replaced: dict[nn.Module, nn.Module] = {}
    for name, linear in chosen.items():
        module = _quantized(name, linear, config, inputs.get(name))
        if module is not None:
            replaced[linear] = module
    for parent in list(model.modules()):
        for child_name, child in parent._modules.items():
            if child is not None and child in replaced:
                parent._modules[child_name] = replaced[child]


def set_precision(model: nn.Module, precision: str) -> None:
    """"full" or "low": the precision in which NestedFP layers multiply from now on. Raises
    InputError where the model has none."""
    if precision not in ("full", "low"):
        raise _native.InputError(f"precision: expected \"full\" or \"low\", got {precision!r}.")
    layers = [module for module in model.modules()
              if isinstance(module, QuantizedLinear) and module.scheme == "nestedfp"]
    if not layers:
        raise _native.InputError("set_precision: expected layers of NestedFP, got none. Quantize "
                                 "the model with NestedFpConfig.")
    for layer in layers:
        layer.is_low = precision == "low"


class _InputMagnitudes:
    """Of a layer's inputs over all calibration tokens: largest magnitudes and mean squares."""

    def __init__(self, in_features: int) -> None:
        self.abs_max = torch.zeros(in_features)
        self.squares = torch.zeros(in_features, dtype=torch.float64)
        self.num_tokens = 0

    def add(self, _: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        """A forward hook."""
        x = args[0].detach().reshape(-1, len(self.abs_max)).float()
        if x.shape[0] == 0:
            return
        self.abs_max = torch.maximum(self.abs_max, x.abs().amax(0).cpu())
        self.squares += x.double().square().sum(0).cpu()
        self.num_tokens += x.shape[0]

    def rms(self) -> torch.Tensor:
        """[in_features]"""
        return (self.squares / max(self.num_tokens, 1)).sqrt().float()


def _record_inputs(model: nn.Module, layers: Mapping[str, nn.Module], calibration: Iterable[Any]
                   ) -> dict[str, _InputMagnitudes]:
    inputs = {name: _InputMagnitudes(int(layer.in_features)) for name, layer in layers.items()}
    hooks = [layer.register_forward_pre_hook(inputs[name].add) for name, layer in layers.items()]
    try:
        with torch.no_grad():
            for batch in calibration:
                if isinstance(batch, Mapping):
                    model(**batch)
                elif isinstance(batch, (tuple, list)):
                    model(*batch)
                else:
                    model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    for name, magnitudes in inputs.items():
        if magnitudes.num_tokens == 0 or not magnitudes.abs_max.isfinite().all():
            raise _native.InputError(f"calibration: expected finite inputs of layer {name!r}, got "
                                     f"{magnitudes.num_tokens} tokens. Give inputs that reach it.")
    return inputs


def _quantized(name: str, linear: nn.Linear, config: Config, inputs: _InputMagnitudes | None
               ) -> QuantizedLinear | None:
    """None: the layer stays as it is."""
    weight = linear.weight.detach()
    group_size = config.group_size_of(linear.in_features)
    module = QuantizedLinear(linear.in_features, linear.out_features, config.scheme, group_size,
                             bias=linear.bias is not None, has_input_perm=inputs is not None,
                             device="meta" if weight.is_meta else None, dtype=weight.dtype)
    module.train(linear.training)
    if weight.is_meta:
        return module
    w = weight.to("cpu", torch.float32).contiguous()
    if isinstance(config, W4AxConfig):
        w = _plan_blocks(module, config, w, inputs)
    why_not = _native.round_linear(torch.get_num_threads(), name, module.packed_format(),
                                   (config.is_symmetric, config.is_per_tensor), memory_of(w),
                                   module.packed_memory())
    if why_not:
        logging.getLogger("halley").warning("%s stays %s: %s", name, weight.dtype, why_not)
        return None
    if linear.bias is not None and module.bias is not None:
        module.bias.data.copy_(linear.bias.data)
    return module.to(weight.device)


def _plan_blocks(module: QuantizedLinear, config: W4AxConfig, w: torch.Tensor,
                 inputs: _InputMagnitudes | None) -> torch.Tensor:
    """Sets the blocks of 8 bits, and returns the weight in packed order."""
    in_features = module.in_features
    if inputs is None or module.input_perm is None:
        num_blocks = round(config.s8_share * -(-in_features // AX_BLOCK))
        module.set_blocks(min(num_blocks * AX_BLOCK, in_features), config.s4_clip)
        return w
    rms = inputs.rms()
    perm, num_s8_inputs = _native.plan_block_inputs(
        (module.out_features, in_features), config.s8_share, memory_of(inputs.abs_max),
        memory_of(rms), memory_of(w))
    module.input_perm.copy_(torch.tensor(perm, dtype=torch.int32))
    module.set_blocks(num_s8_inputs, config.s4_clip)
    return w[:, module.input_perm.long()].contiguous()
