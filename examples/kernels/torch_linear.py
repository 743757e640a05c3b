"""A linear layer of PyTorch whose weight has 4 bits in groups of 128, on libhalley_kernels:

    python torch_linear.py path/to/libhalley_kernels.so
"""

import sys

import torch

import halley_kernels


class Linear4(torch.nn.Module):
    """Weights of a torch.nn.Linear rounded to 4 bits, with a scale and a zero for each 128
    inputs; activations in f16."""

    def __init__(self, library, linear, group_size=128):
        super().__init__()
        N, K = linear.weight.shape
        groups = linear.weight.detach().float().cpu().reshape(N, K // group_size, group_size)
        low, high = groups.amin(2, keepdim=True), groups.amax(2, keepdim=True)
        scales = ((high - low) / 15).clamp(min=1e-6).half().float()
        zeros = (-low / scales).round().clamp(0, 15)
        quantized = (groups / scales + zeros).round().clamp(0, 15)
        self.rounded = ((quantized - zeros) * scales).reshape(N, K)
        self.library = library
        self.weight = library.pack(halley_kernels.W4A16_F16, N, K, group_size,
                                   quantized.to(torch.uint8).numpy(), scales.contiguous().numpy(),
                                   zeros.contiguous().numpy())
        self.bias = None if linear.bias is None else linear.bias.detach().float().cuda()

    def forward(self, x):
        rows = x.reshape(-1, self.weight.K).contiguous()
        y = torch.empty(rows.shape[0], self.weight.N, dtype=torch.float16, device=x.device)
        self.library.gemm(self.weight, rows, y, bias=self.bias,
                             stream=torch.cuda.current_stream().cuda_stream)
        return y.reshape(*x.shape[:-1], self.weight.N)


def main():
    library = halley_kernels.Library(*sys.argv[1:2])
    torch.manual_seed(1)
    linear = Linear4(library, torch.nn.Linear(4096, 6144))
    x = torch.randn(3, 7, 4096, device="cuda", dtype=torch.float16)
    expected = x.float() @ linear.rounded.cuda().T + linear.bias
    error = (linear(x).float() - expected).abs().max() / expected.std()
    print("largest error %.2g standard deviations" % error)
    return 0 if error < 0.02 else 1


if __name__ == "__main__":
    sys.exit(main())
