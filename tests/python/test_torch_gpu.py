"""halley.torch on a GPU: each operator against f64, CUDA graphs, streams, torch.compile. Skipped
where PyTorch has no GPU."""
import copy
import gc
import os

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

from torch import nn  # noqa: E402  (behind importorskip)

import halley  # noqa: E402
import halley.torch as ht  # noqa: E402

pytestmark = pytest.mark.gpu

# Root mean squares of errors over those of outputs. A step of int8 is max|x| / 127, about 3 % of a
# normal input, of which the error is 0.29; e4m3 has 4 significant bits, thus errors of 2.6 %.
# Weights and outputs are also rounded to the activations' type.
EXACT, INT8, FLOAT8 = 0, 0.02, 0.05
ROUNDING = {torch.float16: 0.002, torch.bfloat16: 0.008}
CONFIGS = {
    "int4": (ht.Int4WeightOnlyConfig(), EXACT),
    "int4_32_symmetric": (ht.Int4WeightOnlyConfig(32, True), EXACT),
    "int4_channel": (ht.Int4WeightOnlyConfig(None), EXACT),
    "int8": (ht.Int8WeightOnlyConfig(), EXACT),
    "int8_128": (ht.Int8WeightOnlyConfig(128, False), EXACT),
    "w4a8": (ht.Int8DynamicActivationInt4WeightConfig(), INT8),
    "w4a8_channel": (ht.Int8DynamicActivationInt4WeightConfig(None), INT8),
    "w8a8": (ht.Int8DynamicActivationInt8WeightConfig(), INT8),
    "w4ax_8": (ht.W4AxConfig(s8_share=1), INT8),
    "float8": (ht.Float8DynamicActivationFloat8WeightConfig(), FLOAT8),
    "nestedfp": (ht.NestedFpConfig(), EXACT),
}
# N and K of whole tiles, and odd ones.
SHAPES = [(512, 1024), (1536, 512), (50, 100), (33, 257)]


def make_layer(config, shape, dtype, seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(shape[1], shape[0], dtype=dtype))
    ht.quantize_(model, config)
    return model[0]


def relative_error(y, x, layer):
    expected = x.cpu().double() @ layer.dequantize().double().T + layer.bias.cpu().double()
    return ((y.cpu().double() - expected).square().mean() / expected.square().mean()).sqrt().item()


@pytest.fixture(params=list(CONFIGS))
def case(request):
    return CONFIGS[request.param]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_multiplies_the_dequantized_weight(case, dtype, shape):
    config, error_max = case
    layer = make_layer(config, shape, dtype).cuda()
    assert layer.describe_device()
    for num_rows in (0, 1, 2, 16, 17, 64, 256, 300):
        x = torch.randn(num_rows, shape[1], dtype=dtype, device="cuda")
        with torch.no_grad():
            y = layer(x)
        assert y.shape == (num_rows, shape[0]) and y.dtype == dtype and y.is_contiguous()
        if num_rows:
            assert relative_error(y, x, layer) <= error_max + ROUNDING[dtype], num_rows


def test_low_precision_of_nested_weights():
    layer = make_layer(ht.NestedFpConfig(), (512, 1024), torch.float16).cuda()
    x = torch.randn(5, 1024, dtype=torch.float16, device="cuda")
    with torch.no_grad():
        full = layer(x)
        ht.set_precision(layer, "low")
        low = layer(x)
    assert not torch.equal(full, low) and relative_error(low, x, layer) <= FLOAT8


def test_calibrated_blocks_agree_with_the_cpu():
    torch.manual_seed(1)
    x = torch.randn(32, 1024)
    x[:, 3::32] *= 20
    model = nn.Sequential(nn.Linear(1024, 512))
    ht.quantize_(model, ht.W4AxConfig(calibration=[x]))
    with torch.no_grad():
        expected = model.half()(x.half())
        y = model.cuda()(x.half().cuda()).cpu()
    # Activations round alike on both; f16 is what is left.
    assert (y - expected).abs().max() <= 0.01 * expected.abs().max()


def test_takes_views_and_leading_dimensions(case):
    layer = make_layer(case[0], (512, 1024), torch.float16).cuda()
    wide = torch.randn(2, 3, 1029, dtype=torch.float16, device="cuda")
    for x in (wide[..., 5:], wide[..., :1024], wide[..., 5:].transpose(0, 1)):
        with torch.no_grad():
            assert torch.equal(layer(x), layer(x.contiguous().clone()))


@pytest.mark.parametrize("num_rows", [1, 16, 256])
def test_a_cuda_graph_gives_the_same(case, num_rows):
    layer = make_layer(case[0], (512, 1024), torch.float16).cuda()
    given = torch.randn(num_rows, 1024, dtype=torch.float16, device="cuda")
    x = torch.zeros_like(given)
    with torch.no_grad():
        expected = layer(given)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # fails where the operator waits or allocates by CUDA
            copied = x.clone()  # the nodes before a layer are a copy and a kernel
            y = layer(copied)
            again = layer(copied * 1)
        for values in (given, -given):
            x.copy_(values)
            graph.replay()
            assert torch.equal(y, layer(values)) and torch.equal(again, y)
    assert torch.equal(expected, layer(given).detach())


def test_an_operator_takes_no_memory_beside_pytorchs(case):
    layer = make_layer(case[0], (512, 1024), torch.float16).cuda()
    x = torch.randn(64, 1024, dtype=torch.float16, device="cuda")
    with torch.no_grad():
        layer(x)
        torch.cuda.synchronize()
        free, kept = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
        for _ in range(10):
            layer(x)
        torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] == free and torch.cuda.memory_allocated() == kept


def test_runs_on_the_current_stream(case):
    layer = make_layer(case[0], (512, 1024), torch.float16).cuda()
    x = torch.zeros(16, 1024, dtype=torch.float16, device="cuda")
    values = torch.randn_like(x)
    with torch.no_grad():
        expected = layer(values)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)  # a layer on another stream would see zeros
            x.copy_(values)
            y = layer(x)
        stream.synchronize()
    assert torch.equal(y, expected)


def test_compiles_with_cuda_graphs(case):
    torch._dynamo.reset()
    model = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 256)).half()
    ht.quantize_(model, case[0])
    model.cuda()
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(16, 1024, dtype=torch.float16, device="cuda")
            assert torch.allclose(compiled(x), model(x), atol=1e-2)


def test_modules_move_and_are_saved(case):
    layer = make_layer(case[0], (512, 1024), torch.float16)
    state = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    x = torch.randn(4, 1024, dtype=torch.float16, device="cuda")
    with torch.no_grad():
        y = layer.cuda()(x)
        assert torch.equal(copy.deepcopy(layer)(x), y)
        other = make_layer(case[0], (512, 1024), torch.float16, seed=1).cuda()
        other.load_state_dict(layer.state_dict())
        assert torch.equal(other(x), y)
    for name, tensor in layer.cpu().state_dict().items():
        assert torch.equal(tensor.cpu(), state[name]), name
    assert layer.describe_device() == ""


def test_modules_without_values_load_on_the_gpu(case):
    layer = make_layer(case[0], (512, 1024), torch.float16).cuda()
    with torch.device("meta"):
        empty = nn.Sequential(nn.Linear(1024, 512, dtype=torch.float16))
    ht.quantize_(empty, case[0])
    empty.to_empty(device="cuda")
    on_gpu = {"0." + name: tensor.cuda() for name, tensor in layer.state_dict().items()}
    x = torch.randn(4, 1024, dtype=torch.float16, device="cuda")
    for is_assigned in (False, True):
        empty.load_state_dict(on_gpu, assign=is_assigned)
        with torch.no_grad():
            assert torch.equal(empty(x), layer(x))


def test_weights_leave_the_gpu_with_their_module():
    layer = make_layer(ht.Int8WeightOnlyConfig(), (4096, 8192), torch.float16).cuda()
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    assert layer._device_weight.linear.device_bytes() >= 4096 * 8192
    del layer
    gc.collect()
    torch.cuda.synchronize()
    assert torch.cuda.mem_get_info()[0] >= free + 4096 * 8192


def test_slices_of_inputs_add_up():
    layer = make_layer(ht.Int4WeightOnlyConfig(), (512, 1024), torch.float16).cuda()
    x = torch.randn(8, 1024, dtype=torch.float16, device="cuda")
    with torch.no_grad():
        halves = [layer.slice(1, begin, 512)(x[:, begin:begin + 512]).float()
                  for begin in (0, 512)]
        assert torch.allclose(halves[0] + halves[1], layer(x).float(), atol=2e-2)


def test_rejects_what_a_gpu_does_not_take():
    layer = make_layer(ht.Int4WeightOnlyConfig(), (512, 1024), torch.float32).cuda()
    x = torch.randn(4, 1024, device="cuda")
    with torch.no_grad():
        with pytest.raises(halley.InputError, match="expected a weight on a GPU, got 0"):
            layer(x)
        layer.half()
        with pytest.raises(halley.InputError, match="expected x of float16 or bfloat16, got"):
            layer(x)
        with pytest.raises(halley.InputError, match="x: expected f16, got bf16. Move the module"):
            layer(x.bfloat16())
        with pytest.raises(halley.InputError, match=r"expected x of \[..., 1024\], got \[4, 10"):
            layer(x[:, :1023].half())


def test_perplexity_is_that_of_the_cpu():
    transformers = pytest.importorskip("transformers")
    source = os.environ["HALLEY_TEST_SOURCE"]
    folder = os.path.join(source, "models", "demo-21m")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(folder, "tokenizer.json"))
    path = os.path.join(source, "testdata", "text", "docs_heldout.txt")
    with open(path, encoding="utf-8") as file:
        ids = torch.tensor([tokenizer.encode(file.read(8192), add_special_tokens=False)[:1024]])

    def perplexity(model):
        tokens = ids.to(model.device)
        with torch.no_grad():
            logits = model(tokens).logits[0, :-1].double()
        return nn.functional.cross_entropy(logits, tokens[0, 1:]).exp().item()

    for name, (config, _) in CONFIGS.items():
        model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.float16).eval()
        ht.quantize_(model, config, lambda module, name: name != "lm_head")
        on_cpu = perplexity(copy.deepcopy(model).float())
        assert perplexity(model.cuda()) == pytest.approx(on_cpu, rel=0.005), name
