"""examples/kernels/halley_kernels.py on a GPU, with arrays of its own instead of PyTorch's.

usage: ctypes_test.py PATH_OF_LIBRARY SOURCE_FOLDER
"""

import array
import ctypes
import random
import struct
import sys
import unittest

LIBRARY, SOURCE = sys.argv[1:3]
sys.path.insert(0, SOURCE + "/examples/kernels")
import halley_kernels  # noqa: E402


def open_cudart():
    for name in ("libcudart.so", "/usr/local/cuda/lib64/libcudart.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    sys.exit("ctypes_test: expected the CUDA runtime, found no libcudart.so. Install CUDA.")


CUDART = open_cudart()


def check(status):
    if status != 0:
        raise RuntimeError("CUDA error %d" % status)


class DeviceArray:
    """Memory on the GPU with the interface that PyTorch's tensors have."""

    def __init__(self, typestr, shape, content=None):
        self.num_bytes = int(typestr[2:])
        for length in shape:
            self.num_bytes *= length
        self.pointer = ctypes.c_void_p()
        check(CUDART.cudaMalloc(ctypes.byref(self.pointer), ctypes.c_size_t(self.num_bytes)))
        self.__cuda_array_interface__ = {"typestr": typestr, "shape": shape, "strides": None,
                                         "data": (self.pointer.value, False), "version": 3}
        if content is not None:
            check(CUDART.cudaMemcpy(self.pointer, content, ctypes.c_size_t(self.num_bytes), 1))

    def __del__(self):
        CUDART.cudaFree(self.pointer)

    def read(self):
        content = ctypes.create_string_buffer(self.num_bytes)
        check(CUDART.cudaMemcpy(content, self.pointer, ctypes.c_size_t(self.num_bytes), 2))
        return content.raw


class CtypesTest(unittest.TestCase):
    def setUp(self):
        self.library = halley_kernels.Library(LIBRARY)
        self.addCleanup(self.library.close)

    def test_gemm_in_f16(self):
        rows, outputs, inputs, group = 3, 48, 256, 128
        draw = random.Random(1)
        codes = bytes(draw.randrange(16) for _ in range(outputs * inputs))
        groups = outputs * inputs // group
        scales = array.array("f", (draw.randrange(1, 64) / 256 for _ in range(groups)))
        zeros = array.array("f", (draw.randrange(17) for _ in range(groups)))
        x = [draw.randrange(-8, 9) / 8 for _ in range(rows * inputs)]
        bias = array.array("f", (draw.randrange(-4, 5) for _ in range(outputs)))
        weight = self.library.pack(halley_kernels.W4A16_F16, outputs, inputs, group, codes, scales,
                                   zeros)
        x_device = DeviceArray("<f2", (rows, inputs), struct.pack("<%de" % len(x), *x))
        y_device = DeviceArray("<f4", (rows, outputs))
        for kernels, gemm in ((None, self.library.gemm), ("mma", self.library.gemm),
                              (None, self.library.product)):
            self.library.choose(kernels)
            gemm(weight, x_device, y_device, bias=DeviceArray("<f4", (outputs,), bias.tobytes()))
            y = struct.unpack("<%df" % (rows * outputs), y_device.read())
            for m in range(rows):
                for n in range(outputs):
                    expected = bias[n]
                    for k in range(inputs):
                        entry = n * (inputs // group) + k // group
                        number = scales[entry] * (codes[n * inputs + k] - zeros[entry])
                        expected += x[m * inputs + k] * number
                    self.assertAlmostEqual(y[m * outputs + n], expected, delta=2e-3)

    def test_experts_in_e4m3(self):
        rows, outputs, inputs, count = 4, 64, 128, 2
        draw = random.Random(2)
        one, two = 0x38, 0x40  # 1 and 2 in e4m3
        values = {one: 1.0, two: 2.0, one | 0x80: -1.0, 0: 0.0}
        codes = [bytes(draw.choice(list(values)) for _ in range(outputs * inputs))
                 for _ in range(count)]
        scales = array.array("f", [0.5] * outputs)
        weights = [self.library.pack(halley_kernels.FP8, outputs, inputs, inputs, some, scales)
                   for some in codes]
        x = [draw.randrange(-4, 5) for _ in range(rows * inputs)]
        for m in range(rows):
            x[m * inputs] = 448  # the largest magnitude: a scale of 1
        x_device = DeviceArray("<f2", (rows, inputs), struct.pack("<%de" % len(x), *x))
        quantized = DeviceArray("|u1", (rows, inputs))
        x_scales = DeviceArray("<f4", (rows,))
        self.library.quantize(weights[0], x_device, quantized, x_scales)
        begin = DeviceArray("<i4", (count + 1,), struct.pack("<3i", 0, 2, 5))
        of_slots = [3, 0, 1, 2, 3]
        y_device = DeviceArray("<f2", (len(of_slots), outputs))
        self.library.grouped_gemm(
            self.library.join_experts(weights), quantized, y_device, begin,
            DeviceArray("<i4", (len(of_slots),), struct.pack("<5i", *of_slots)),
            scales=x_scales, activation=halley_kernels.RELU)
        y = struct.unpack("<%de" % (len(of_slots) * outputs), y_device.read())
        for slot, m in enumerate(of_slots):
            for n in range(outputs):
                weight = codes[0 if slot < 2 else 1][n * inputs:(n + 1) * inputs]
                total = sum(x[m * inputs + k] * values[weight[k]] for k in range(inputs)) / 2
                self.assertAlmostEqual(y[slot * outputs + n], max(total, 0),
                                       delta=abs(total) / 1024 + 1e-3)

    def test_library_exports_both_names_of_gemm(self):
        exports = ctypes.CDLL(LIBRARY)
        for name in ("gemm", "product", "block_gemm", "block_product", "grouped_gemm"):
            self.assertTrue(hasattr(exports, "halley_kernels_" + name), name)

    def test_rejections_are_exceptions(self):
        with self.assertRaisesRegex(halley_kernels.Error, "groups of 48 inputs"):
            self.library.pack(halley_kernels.W4A16_F16, 2, 96, 48, bytes(192),
                              array.array("f", [1] * 4))
        with self.assertRaisesRegex(halley_kernels.Error, "expected hopper or mma"):
            self.library.choose("volta")
        with self.assertRaisesRegex(ValueError, "expected 192 elements of 1 bytes, got 5"):
            self.library.pack(halley_kernels.W4A8, 2, 96, 96, bytes(5), array.array("f", [1] * 2))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
