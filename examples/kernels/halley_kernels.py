"""libhalley_kernels from Python, by ctypes alone.

Arrays on the GPU are anything with `__cuda_array_interface__` (PyTorch's CUDA tensors, CuPy,
Numba), u8 for e4m3, or PyTorch tensors of bf16 and float8_e4m3fn; arrays of the host anything that
`ctypes` can read as a buffer (NumPy, PyTorch by `.numpy()`).
"""

import ctypes

F32, F16, BF16, S8, E4M3 = 0, 1, 2, 3, 4
W4A8, W4A8_GROUP, W4A16_F16, W4A16_BF16 = 0, 1, 2, 3
W8A16, W3A16, W2A16, W1A16, W2A8, W1A8 = 4, 5, 6, 7, 8, 9
W8A16_F16, W8A16_BF16, W8A8, FP8, NESTED = 10, 11, 12, 13, 14
NO_ACTIVATION, SILU, GELU_TANH, GELU_ERF, RELU = 0, 1, 2, 3, 4
VERSION = 2
_PER_CHANNEL = (W4A8, W4A8_GROUP, W8A8, FP8)
_DTYPES = {"<f4": F32, "<f2": F16, "|i1": S8, "<i1": S8, "|u1": E4M3}
_TORCH_DTYPES = {"torch.bfloat16": BF16, "torch.float8_e4m3fn": E4M3}


class Error(RuntimeError):
    """What the library rejected, with its message."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


class _Matrix(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("dtype", ctypes.c_int), ("num_rows", ctypes.c_int64),
                ("num_cols", ctypes.c_int64), ("row_stride", ctypes.c_int64)]


class _Source(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("N", ctypes.c_int64), ("K", ctypes.c_int64),
                ("group_size", ctypes.c_int64), ("codes", ctypes.c_void_p),
                ("scales", ctypes.c_void_p), ("zeros", ctypes.c_void_p),
                ("group_scales", ctypes.c_void_p)]


class _Input(ctypes.Structure):
    _fields_ = [("x", _Matrix), ("scales", ctypes.c_void_p), ("sums", ctypes.c_void_p),
                ("bias", ctypes.c_void_p)]


class _Rows(ctypes.Structure):
    _fields_ = [("x", _Matrix), ("scales", ctypes.c_void_p), ("sums", ctypes.c_void_p)]


class _Grouping(ctypes.Structure):
    _fields_ = [("expert_begin", ctypes.c_void_p), ("slot_rows", ctypes.c_void_p),
                ("activation", ctypes.c_int)]


def _matrix(array):
    """A matrix of the library over an array of two dimensions on the GPU."""
    torch_dtype = _TORCH_DTYPES.get(str(getattr(array, "dtype", "")))
    if torch_dtype is not None:
        (rows, cols), (stride, step) = array.shape, array.stride()
        if step != 1:
            raise ValueError("expected dense columns, got a step of %d" % step)
        return _Matrix(array.data_ptr(), torch_dtype, rows, cols, stride)
    interface = array.__cuda_array_interface__
    dtype = _DTYPES.get(interface["typestr"])
    if dtype is None or len(interface["shape"]) != 2:
        raise ValueError("expected two dimensions of f32, f16, bf16, s8 or e4m3, got %s of %s" %
                         (interface["shape"], interface["typestr"]))
    rows, cols = interface["shape"]
    element = int(interface["typestr"][2:])
    strides = interface.get("strides") or (cols * element, element)
    if strides[1] != element or strides[0] % element:
        raise ValueError("expected dense columns, got strides of %s bytes" % (strides,))
    return _Matrix(interface["data"][0], dtype, rows, cols, strides[0] // element)


def _pointer(array, typestr, length):
    """Of a dense array on the GPU, or None."""
    if array is None:
        return None
    interface = array.__cuda_array_interface__
    if interface["typestr"] != typestr or tuple(interface["shape"]) != (length,):
        raise ValueError("expected %d numbers of %s, got %s of %s" %
                         (length, typestr, interface["shape"], interface["typestr"]))
    return interface["data"][0]


def _host(values, element, count):
    """A host buffer of `count` elements of `element` bytes."""
    if values is None:
        return None
    view = memoryview(values).cast("B")
    if view.nbytes != element * count:
        raise ValueError("expected %d elements of %d bytes, got %d bytes" %
                         (count, element, view.nbytes))
    return (ctypes.c_char * view.nbytes).from_buffer_copy(view)


class Library:
    """The loaded library and its workspace on one GPU."""

    def __init__(self, path="libhalley_kernels.so", device=0, workspace_bytes=0):
        self._c = ctypes.CDLL(path)
        self._c.halley_kernels_last_error.restype = ctypes.c_char_p
        self._c.halley_kernels_weight_bytes.restype = ctypes.c_size_t
        if self._c.halley_kernels_version() != VERSION:
            raise ImportError("%s: expected version %d, got %d" %
                              (path, VERSION, self._c.halley_kernels_version()))
        self._context = ctypes.c_void_p()
        self._check(self._c.halley_kernels_open(
            device, ctypes.c_size_t(workspace_bytes), ctypes.byref(self._context)))

    def close(self):
        self._c.halley_kernels_close(self._context)
        self._context = ctypes.c_void_p()

    def _check(self, status):
        if status != 0:
            raise Error(status, self._c.halley_kernels_last_error().decode())

    def choose(self, kernels=None):
        """"hopper", "mma", or None for the first that the GPU runs."""
        self._check(self._c.halley_kernels_choose(
            self._context, None if kernels is None else kernels.encode()))

    def allow_pdl(self, is_allowed):
        """Whether GEMMs may begin while the kernel ahead of them on the stream still runs."""
        self._check(self._c.halley_kernels_allow_pdl(self._context, int(is_allowed)))

    def pack(self, kind, N, K, group_size, codes, scales=None, zeros=None, group_scales=None):
        """Packs a weight from host arrays: codes u8 [N, K] (NESTED: f16), scales and zeros f32,
        group_scales u8, as halley_kernels.h says."""
        groups = N * -(-K // group_size)
        of_scales = N if kind in _PER_CHANNEL else groups
        arrays = [_host(codes, 2 if kind == NESTED else 1, N * K), _host(scales, 4, of_scales),
                  _host(zeros, 4, groups), _host(group_scales, 1, groups)]
        pointers = [ctypes.cast(a, ctypes.c_void_p) if a is not None else None for a in arrays]
        source = _Source(kind, N, K, group_size, *pointers)
        weight = ctypes.c_void_p()
        self._check(self._c.halley_kernels_pack(
            self._context, ctypes.byref(source), ctypes.byref(weight)))
        return Weight(self, weight, N, K)

    def quantize_rows(self, x, quantized, scales, sums=None, stream=0):
        """Quantizes x [M, K] to s8, with per-token scales f32 [M] and row sums int32 [M]."""
        matrix = _matrix(x)
        self._check(self._c.halley_kernels_quantize_rows(
            self._context, matrix, _matrix(quantized),
            ctypes.c_void_p(_pointer(scales, "<f4", matrix.num_rows)),
            ctypes.c_void_p(_pointer(sums, "<i4", matrix.num_rows)), ctypes.c_void_p(stream)))

    def quantize(self, weight, x, quantized, scales, sums=None, stream=0):
        """Quantizes x [M, K] as GEMMs with the weight take it, to s8 or e4m3."""
        matrix = _matrix(x)
        rows = _Rows(_matrix(quantized), _pointer(scales, "<f4", matrix.num_rows),
                     _pointer(sums, "<i4", matrix.num_rows))
        self._check(self._c.halley_kernels_quantize(
            self._context, weight.handle, matrix, ctypes.byref(rows), ctypes.c_void_p(stream)))

    def gemm(self, weight, x, y, scales=None, sums=None, bias=None, stream=0):
        """y [M, N] = x [M, K] W^T + bias; scales and sums are those of quantized inputs."""
        matrix = _matrix(x)
        rows = matrix.num_rows
        given = _Input(matrix, _pointer(scales, "<f4", rows), _pointer(sums, "<i4", rows),
                       _pointer(bias, "<f4", weight.N))
        self._check(self._c.halley_kernels_gemm(
            self._context, weight.handle, ctypes.byref(given), _matrix(y),
            ctypes.c_void_p(stream)))

    product = gemm  # another name

    def join_experts(self, weights, biases=None, is_gated=False):
        """The weights of a layer's experts, with a bias f32 [N] on the GPU each, or without.
        is_gated: the first half of each weight's outputs is the gate of the other."""
        handles = (ctypes.c_void_p * len(weights))(*[weight.handle for weight in weights])
        addresses = None
        if biases is not None:
            addresses = (ctypes.c_void_p * len(weights))(
                *[_pointer(bias, "<f4", weight.N) for bias, weight in zip(biases, weights)])
        experts = ctypes.c_void_p()
        self._check(self._c.halley_kernels_join_experts(
            self._context, handles, ctypes.c_int64(len(weights)), addresses, int(is_gated),
            ctypes.byref(experts)))
        return Experts(self, experts, weights, biases)

    def grouped_gemm(self, experts, x, y, expert_begin, rows=None, activation=NO_ACTIVATION,
                     scales=None, sums=None, stream=0):
        """y [slots, N] = f(x[rows] W^T + bias) with the weight of each slot's expert: those from
        expert_begin[e] to expert_begin[e + 1] have expert e. All arrays are on the GPU."""
        matrix, to = _matrix(x), _matrix(y)
        count = matrix.num_rows
        given = _Input(matrix, _pointer(scales, "<f4", count), _pointer(sums, "<i4", count), None)
        grouping = _Grouping(_pointer(expert_begin, "<i4", len(experts.weights) + 1),
                             _pointer(rows, "<i4", to.num_rows), activation)
        self._check(self._c.halley_kernels_grouped_gemm(
            self._context, experts.handle, ctypes.byref(given), ctypes.byref(grouping), to,
            ctypes.c_void_p(stream)))


class Weight:
    """A packed weight on the GPU."""

    def __init__(self, library, handle, N, K):
        self._c = library._c
        self.handle, self.N, self.K = handle, N, K
        self.needs_sums = self._c.halley_kernels_needs_sums(handle) != 0
        self.num_bytes = self._c.halley_kernels_weight_bytes(handle)

    def __del__(self):
        self._c.halley_kernels_free(self.handle)


class Experts:
    """The joined weights of a layer's experts, which it keeps alive."""

    def __init__(self, library, handle, weights, biases):
        self._c = library._c
        self.handle, self.weights, self.biases = handle, list(weights), biases

    def __del__(self):
        self._c.halley_kernels_free_experts(self.handle)
