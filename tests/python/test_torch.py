"""halley.torch on the CPU. Skipped where PyTorch is not installed."""
import copy
import io
import logging
import socket

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402  (behind importorskip)

import halley  # noqa: E402
import halley.torch as ht  # noqa: E402

# Largest error of y over the sum of |x w|: rounding of activations to 21 bits or f32 accumulation;
# to int8; to e4m3; to 4 bits.
EXACT, INT8, FLOAT8, INT4 = 1e-6, 1 / 64, 1 / 16, 1 / 4
CONFIGS = {
    "int4": (ht.Int4WeightOnlyConfig(), EXACT),
    "int4_32_symmetric": (ht.Int4WeightOnlyConfig(group_size=32, symmetric=True), EXACT),
    "int8": (ht.Int8WeightOnlyConfig(), EXACT),
    "int8_64": (ht.Int8WeightOnlyConfig(group_size=64, symmetric=False), EXACT),
    "w4a8": (ht.Int8DynamicActivationInt4WeightConfig(), INT8),
    "w4a8_channel": (ht.Int8DynamicActivationInt4WeightConfig(group_size=None), INT8),
    "w8a8": (ht.Int8DynamicActivationInt8WeightConfig(), INT8),
    "w4ax_8": (ht.W4AxConfig(s8_share=1), INT8),
    "float8": (ht.Float8DynamicActivationFloat8WeightConfig(), FLOAT8),
    "float8_tensor": (ht.Float8DynamicActivationFloat8WeightConfig("tensor"), FLOAT8),
    "nestedfp": (ht.NestedFpConfig(), EXACT),
}
IN_FEATURES, HIDDEN = 256, 96


def make_model(seed=0, hidden=HIDDEN):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(IN_FEATURES, hidden), nn.ReLU(),
                         nn.Linear(hidden, 40, bias=False)).eval()


def calibrated():
    """W4Ax whose blocks of 8 bits hold the inputs with outliers."""
    torch.manual_seed(5)
    x = torch.randn(16, IN_FEATURES)
    x[:, 5::16] *= 20
    return ht.W4AxConfig(calibration=[x, (x,), {"input": x}]), x


@pytest.fixture(params=list(CONFIGS))
def case(request):
    return CONFIGS[request.param]


def relative_error(y, x, weight, bias):
    """Over the sum of |x w|, in f64."""
    x, weight, bias = x.double(), weight.double(), bias.double()
    magnitude = x.abs() @ weight.abs().T + bias.abs()
    return ((y.double() - (x @ weight.T + bias)).abs() / magnitude).max().item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(IN_FEATURES,), (0, IN_FEATURES), (1, IN_FEATURES),
                                   (3, 5, IN_FEATURES)])
def test_multiplies_as_torch_does_the_dequantized_weight(case, dtype, shape):
    config, error_max = case
    model = make_model().to(dtype)
    ht.quantize_(model, config)
    linear = model[0]
    assert isinstance(linear, ht.QuantizedLinear)
    torch.manual_seed(1)
    x = torch.randn(*shape, dtype=dtype)
    with torch.no_grad():
        y = linear(x)
    assert y.shape == (*shape[:-1], HIDDEN) and y.dtype == dtype and y.is_contiguous()
    if y.numel() == 0:
        return
    # And half a step of y's own type.
    rounding = 0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
    assert relative_error(y, x, linear.dequantize(), linear.bias) <= error_max + rounding


def test_a_row_does_not_depend_on_its_batch(case):
    model = make_model()
    ht.quantize_(model, case[0])
    x = torch.randn(7, IN_FEATURES)
    with torch.no_grad():
        assert torch.equal(model(x)[3], model(x[3]))


def test_nested_weights_have_a_low_precision():
    model = make_model()
    ht.quantize_(model, ht.NestedFpConfig())
    x = torch.randn(4, IN_FEATURES)
    with torch.no_grad():
        full = model[0](x)
        ht.set_precision(model, "low")
        low = model[0](x)
        error = relative_error(low, x, model[0].dequantize(), model[0].bias)
        assert not torch.equal(low, full) and error <= FLOAT8
        ht.set_precision(model, "full")
        assert torch.equal(model[0](x), full)


def test_nested_layers_with_large_weights_stay(caplog):
    model = make_model()
    with torch.no_grad():
        model[2].weight[1, 2] = 2.0
    with caplog.at_level(logging.WARNING, "halley"):
        ht.quantize_(model, ht.NestedFpConfig())
    assert isinstance(model[0], ht.QuantizedLinear) and type(model[2]) is nn.Linear
    assert caplog.messages == ["2 stays torch.float32: 1 of 3840 weights are beyond 1.75, the "
                               "first is 2 at [1, 2]"]


def test_outliers_get_the_blocks_of_8_bits():
    config, x = calibrated()
    model = make_model()
    weight = model[0].weight.detach().clone()
    ht.quantize_(model, config, lambda module, name: name == "0")
    linear = model[0]
    assert linear.num_s8_inputs == 128 and linear.block_bits.tolist() == [8, 4]
    assert set(range(5, IN_FEATURES, 16)) <= set(linear.input_perm[:128].tolist())
    assert (linear.dequantize() - weight).abs().max() <= weight.abs().max() / 14
    with torch.no_grad():
        error = relative_error(linear(x), x, linear.dequantize(), linear.bias)
    assert error <= INT4


def all_configs():
    return [config for config, _ in CONFIGS.values()] + [calibrated()[0]]


@pytest.mark.parametrize("config", all_configs(), ids=str)
def test_compiles_without_graph_breaks(config):
    torch._dynamo.reset()
    model = make_model()
    ht.quantize_(model, config, lambda module, name: name == "0")
    x = torch.randn(5, IN_FEATURES)
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
        assert torch.equal(compiled(x), model(x))
        assert torch.equal(compiled(x[:2]), model(x[:2]))
    explained = torch._dynamo.explain(model)(x)
    assert explained.graph_break_count == 0 and explained.graph_count == 1


def test_inductor_compiles_it():
    torch._dynamo.reset()
    model = make_model()
    ht.quantize_(model, ht.Int4WeightOnlyConfig())
    x = torch.randn(5, IN_FEATURES)
    with torch.no_grad():
        y = torch.compile(model, fullgraph=True)(x)
        assert torch.allclose(y, model(x), atol=1e-5)


def test_operators_keep_their_promises():
    model = make_model()
    ht.quantize_(model, ht.Int4WeightOnlyConfig())
    linear = model[0]
    args = (torch.randn(3, IN_FEATURES), linear.qweight, linear.groups, None, linear.bias,
            linear.scheme, linear._sizes(), linear.s4_clip, False)
    torch.library.opcheck(
        torch.ops.halley.linear.default, args,
        test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_dynamic"))


@pytest.mark.parametrize("config", all_configs(), ids=str)
def test_state_dict_saves_and_loads(config):
    model, other = make_model(1), make_model(2)
    chosen = (lambda module, name: name == "0")
    ht.quantize_(model, config, chosen)
    ht.quantize_(other, config, chosen)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    other.load_state_dict(state)
    x = torch.randn(3, IN_FEATURES)
    with torch.no_grad():
        assert torch.equal(other(x), model(x))
    # Without weights in full precision: modules without contents take the state.
    with torch.device("meta"):
        empty = make_model()
    ht.quantize_(empty, config, chosen)
    empty.load_state_dict(state, assign=True)
    with torch.no_grad():
        assert torch.equal(empty(x), model(x))


def test_states_of_mapped_files_are_placed_where_kernels_load():
    model, other = make_model(1), make_model(2)
    for each in (model, other):
        ht.quantize_(each, ht.Int4WeightOnlyConfig())
    state = {}
    for name, tensor in model.state_dict().items():
        memory = torch.empty(tensor.nbytes + 8, dtype=torch.uint8)[8:]
        state[name] = memory.view(tensor.dtype).view(tensor.shape).copy_(tensor)
    other.load_state_dict(state, assign=True)
    x = torch.randn(3, IN_FEATURES)
    with torch.no_grad():
        assert torch.equal(other(x), model(x))


def test_modules_without_values_move_first_and_load_then():
    model = make_model(1)
    config = calibrated()[0]
    ht.quantize_(model, config, lambda module, name: name == "0")
    with torch.device("meta"):
        empty = make_model()
    ht.quantize_(empty, config, lambda module, name: name == "0")
    empty.to_empty(device="cpu").load_state_dict(model.state_dict())
    x = torch.randn(3, IN_FEATURES)
    with torch.no_grad():
        assert torch.equal(empty(x), model(x))


def test_modules_can_be_copied_and_pickled():
    model = make_model()
    ht.quantize_(model, ht.Int4WeightOnlyConfig())
    x = torch.randn(3, IN_FEATURES)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(model)(x), model(x))
        assert torch.equal(torch.load(file, weights_only=False)(x), model(x))


def test_types_of_packed_tensors_stay():
    model = make_model()
    ht.quantize_(model, ht.Int4WeightOnlyConfig())
    groups = model[0].groups.clone()
    model.half().to(torch.bfloat16)
    assert model[0].bias.dtype == torch.bfloat16
    assert model[0].qweight.dtype == torch.uint8 and torch.equal(model[0].groups, groups)


def random_linear(scheme, group_size, out_features=96, in_features=256, seed=0):
    """A module of random quantized values, and what they are."""
    torch.manual_seed(seed)
    planes = (2,) if scheme == "nestedfp" else ()
    qweight = torch.randint(0, 16 if "int4" in scheme else 120,
                            (*planes, out_features, in_features), dtype=torch.uint8)
    if scheme == "nestedfp":
        linear = nn.Sequential(nn.Linear(in_features, out_features))
        ht.quantize_(linear, ht.NestedFpConfig())
        qweight = linear[0].to_quantized()[0]
    num_groups = -(-in_features // group_size)
    scales = torch.rand(out_features, num_groups) + 0.1
    zeros = torch.randint(0, 16, (out_features, num_groups)).float()
    bias = torch.randn(out_features)
    blocks = {"num_s8_inputs": 128, "input_perm": torch.randperm(in_features)} \
        if scheme == "int4_ax" else {}
    pieces = {"qweight": qweight, "scales": scales, "zeros": zeros, "bias": bias}
    return pieces, blocks


def pack(pieces, blocks, scheme, group_size):
    return ht.QuantizedLinear.from_quantized(
        pieces["qweight"], pieces["scales"], pieces["zeros"], scheme, bias=pieces["bias"],
        group_size=group_size, **blocks)


def assert_same_buffers(a, b):
    state_a, state_b = a.state_dict(), b.state_dict()
    assert state_a.keys() == state_b.keys()
    for name, tensor in state_a.items():
        assert torch.equal(tensor, state_b[name]), name


SCHEMES = [("int4", 32), ("int4", 128), ("int8", 256), ("int8", 64), ("int4_a8", 128),
           ("int8_a8", 256), ("int4_ax", 128), ("float8", 256), ("nestedfp", 256)]


@pytest.mark.parametrize("scheme,group_size", SCHEMES)
def test_packing_and_slicing_of_outputs_commute(scheme, group_size):
    pieces, blocks = random_linear(scheme, group_size)
    whole = pack(pieces, blocks, scheme, group_size)
    sliced = {name: t[..., 32:96, :] if name == "qweight" else t[32:96]
              for name, t in pieces.items()}
    part = whole.slice(0, 32, 64)
    assert_same_buffers(part, pack(sliced, blocks, scheme, group_size))
    assert torch.equal(part.qweight, whole.qweight[1:])  # by hand
    x = torch.randn(3, 256)
    with torch.no_grad():
        assert torch.equal(part(x), whole(x)[:, 32:96])


@pytest.mark.parametrize("scheme,group_size", SCHEMES)
def test_packing_and_slicing_of_inputs_commute(scheme, group_size):
    pieces, blocks = random_linear(scheme, group_size)
    whole = pack(pieces, blocks, scheme, group_size)
    is_grouped = group_size < 256
    for begin in (0, 128):
        part = whole.slice(1, begin, 128)
        groups = slice(begin // group_size, (begin + 128) // group_size) if is_grouped \
            else slice(None)
        sliced = {"qweight": pieces["qweight"][..., begin:begin + 128],
                  "scales": pieces["scales"][:, groups], "zeros": pieces["zeros"][:, groups],
                  "bias": pieces["bias"] if begin == 0 else None}
        if scheme != "int4_ax":
            assert_same_buffers(part, pack(sliced, blocks, scheme, min(group_size, 128)))
        units = slice(begin // 32, (begin + 128) // 32)
        assert torch.equal(part.qweight, whole.qweight[..., units, :])  # by hand
    weights = [whole.slice(1, begin, 128).dequantize() for begin in (0, 128)]
    # Where inputs are permuted, a slice multiplies its own of all of them.
    joined = weights[0] + weights[1] if blocks else torch.cat(weights, 1)
    assert torch.equal(joined, whole.dequantize())


def test_slices_of_inputs_add_up():
    pieces, blocks = random_linear("int4", 64)
    whole = pack(pieces, blocks, "int4", 64)
    x = torch.randn(5, 256)
    with torch.no_grad():
        y = whole.slice(1, 0, 128)(x[:, :128]) + whole.slice(1, 128, 128)(x[:, 128:])
        assert torch.allclose(y, whole(x), rtol=1e-4, atol=1e-3)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_rank(rank, num_ranks, port, results):
    """Two layers over two ranks, by parallelize_module."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.distributed.tensor.parallel import parallelize_module
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                            world_size=num_ranks)
    try:
        mesh = init_device_mesh("cpu", (num_ranks,))
        model = make_model(hidden=128)
        ht.quantize_(model, ht.Int4WeightOnlyConfig(group_size=64))
        sharded = distribute_tensor(model[0].qweight, mesh, [Shard(0)]).to_local()
        parallelize_module(model, mesh, {"0": ht.ColwiseParallel(), "2": ht.RowwiseParallel()})
        torch.manual_seed(3)
        with torch.no_grad():
            y = model(torch.randn(4, IN_FEATURES))
        results[rank] = (y.tolist(), torch.equal(sharded, model[0].qweight))
    finally:
        dist.destroy_process_group()


def test_tensor_parallelism_gives_the_same():
    import torch.multiprocessing as mp
    with mp.get_context("spawn").Manager() as manager:
        results = manager.dict()
        mp.spawn(run_rank, (2, free_port(), results), nprocs=2)
        got = dict(results)
    model = make_model(hidden=128)
    ht.quantize_(model, ht.Int4WeightOnlyConfig(group_size=64))
    torch.manual_seed(3)
    with torch.no_grad():
        expected = model(torch.randn(4, IN_FEATURES))
    for rank in range(2):
        assert got[rank][1], "slices by DTensor are those of parallelize_module"
        assert torch.allclose(torch.tensor(got[rank][0]), expected, atol=1e-5)


def test_modules_that_are_shared_stay_shared():
    linear = nn.Linear(64, 64)
    model = nn.ModuleDict({"a": linear, "b": nn.Sequential(linear)})
    ht.quantize_(model, ht.Int8WeightOnlyConfig())
    assert isinstance(model["a"], ht.QuantizedLinear) and model["a"] is model["b"][0]


def rejects(match, call, *args, error=halley.InputError, **options):
    with pytest.raises(error) as caught:
        call(*args, **options)
    assert match in str(caught.value)


def test_rejects_wrong_configurations():
    rejects("group_size: expected None (per-channel) or 1 and more, got 0.",
            ht.Int4WeightOnlyConfig, group_size=0)
    rejects("s8_share: expected 0 to 1, got 2.", ht.W4AxConfig, s8_share=2)
    rejects("s4_clip: expected above 0 and at most 1, got 0.", ht.W4AxConfig, s8_share=1, s4_clip=0)
    rejects("calibration: expected inputs of the model, by which the blocks of 8 bits are chosen, "
            "got None with s8_share 0.25.", ht.W4AxConfig)
    rejects('granularity: expected "row" or "tensor", got \'block\'.',
            ht.Float8DynamicActivationFloat8WeightConfig, "block")


def test_rejects_wrong_models():
    rejects("quantize_: expected a module that holds nn.Linear, got one.",
            ht.quantize_, nn.Linear(4, 4), ht.Int4WeightOnlyConfig())
    rejects("quantize_: expected a module with nn.Linear layers that filter_fn chooses, got none "
            "of 2.", ht.quantize_, make_model(), ht.Int4WeightOnlyConfig(), lambda *_: False)
    broken = make_model()
    with torch.no_grad():
        broken[0].weight[1, 2] = float("nan")
    rejects('layer "0": expected finite weights, got nan at [1, 2].',
            ht.quantize_, broken, ht.Int4WeightOnlyConfig())
    rejects("calibration: expected finite inputs of layer '0', got 0 tokens.",
            ht.quantize_, make_model(), ht.W4AxConfig(calibration=[]))
    rejects("set_precision: expected layers of NestedFP, got none.",
            ht.set_precision, make_model(), "low")
    rejects("precision: expected \"full\" or \"low\", got 'half'.",
            ht.set_precision, make_model(), "half")


def test_rejects_wrong_inputs():
    model = make_model()
    ht.quantize_(model, ht.Int4WeightOnlyConfig())
    linear = model[0]
    with torch.no_grad():
        rejects("halley::linear: expected x of [..., 256], got [3, 255].", linear,
                torch.zeros(3, 255))
        rejects("halley::linear: expected x of a floating-point type, got torch.int64.", linear,
                torch.zeros(3, 256, dtype=torch.int64))
    rejects("slice: expected multiples of 32 of 0 to 96 in dimension 0, got 16 to 48.",
            linear.slice, 0, 16, 32)
    rejects("slice: expected multiples of 128 of 0 to 256 in dimension 1, got 0 to 64.",
            linear.slice, 1, 0, 64)
    # A tensor that a caller of the operator made: its memory is not where kernels load from.
    shifted = torch.empty(linear.qweight.numel() + 1, dtype=torch.uint8)[1:]
    linear.qweight = shifted.view_as(linear.qweight)
    with torch.no_grad():
        rejects("packed weight: qweight: expected memory at a multiple of 64 bytes. Clone the "
                "tensor.", linear, torch.zeros(3, 256))
        linear.qweight = linear.qweight[:1]
        rejects("packed weight: qweight: expected", linear, torch.zeros(3, 256))


def test_rejects_training():
    model = make_model()
    ht.quantize_(model, ht.Int4WeightOnlyConfig())
    y = model(torch.randn(3, IN_FEATURES, requires_grad=True))
    rejects("halley.torch: expected inference, got a backward pass through a quantized layer.",
            y.sum().backward, error=halley.UnsupportedError)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_rejects_a_weight_that_is_not_on_the_gpu():
    from halley.torch.ops import DeviceWeight
    rejects("halley::linear_cuda: expected a weight on a GPU, got 0, which is none.",
            DeviceWeight.find, 0)


def test_rejects_modules_that_parallelize_module_cannot_divide():
    from torch.distributed.device_mesh import init_device_mesh
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{free_port()}", rank=0,
                            world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        rejects("parallelize_module: expected a QuantizedLinear, got Linear. Call quantize_() "
                "first.", ht.ColwiseParallel()._apply, nn.Linear(4, 4), mesh)
    finally:
        dist.destroy_process_group()
