// The functions of halley.torch.

#include <utility>

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "halley/python/bindings.h"
#include "halley/python/torch_linear.h"
#include "halley/quant/packed/packed_tensors.h"

namespace halley::python {
namespace {

/// A tensor's address and bytes; (0, 0) stands for none.
using Memory = std::pair<uintptr_t, size_t>;

TensorMemory memory_of(const Memory& memory) { return {memory.first, memory.second}; }

/// qweight, groups, input_perm.
using PackedMemory = std::vector<Memory>;

PackedTensors tensors_of(const PackedMemory& memory) {
  constexpr size_t kNumTensors = 3;
  if (memory.size() != kNumTensors) throw nb::value_error("expected three tensors");
  return {memory_of(memory[0]), memory_of(memory[1]), memory_of(memory[2])};
}

Precision precision_of(bool is_low) { return is_low ? Precision::kLow : Precision::kFull; }

void bind_format(nb::module_& module) {
  nb::class_<PackedFormat>(module, "PackedFormat")
      .def(
          "__init__",
          [](PackedFormat* format, std::string scheme, std::pair<int64_t, int64_t> shape,
             int64_t group_size, int64_t num_inputs, bool has_input_perm,
             std::pair<int64_t, float> blocks) {
            new (format) PackedFormat{.scheme = std::move(scheme),
                                      .N = shape.first,
                                      .K = shape.second,
                                      .group_size = group_size,
                                      .num_inputs = num_inputs,
                                      .has_input_perm = has_input_perm,
                                      .num_s8_inputs = blocks.first,
                                      .s4_clip = blocks.second};
          },
          nb::arg("scheme"), nb::arg("shape"), nb::arg("group_size"), nb::arg("num_inputs"),
          nb::arg("has_input_perm"), nb::arg("blocks"))
      .def("qweight_shape", &qweight_shape)
      .def("groups_shape", &groups_shape);
}

void bind_packing(nb::module_& module) {
  module.def(
      "round_linear",
      [](int threads, const std::string& name, const PackedFormat& format,
         std::pair<bool, bool> options, const Memory& w, const PackedMemory& out) {
        std::string why_not;
        with_threads(threads, [&](ExecContext& context) {
          why_not = round_linear(context, name, format,
                                 {.is_symmetric = options.first, .is_per_tensor = options.second},
                                 memory_of(w), tensors_of(out));
        });
        return why_not;
      },
      nb::arg("threads"), nb::arg("name"), nb::arg("format"), nb::arg("options"), nb::arg("w"),
      nb::arg("out"), WithoutGil());
  module.def(
      "pack_linear",
      [](int threads, const PackedFormat& format, const PackedMemory& plain,
         const PackedMemory& out) {
        const PackedTensors from = tensors_of(plain);
        with_threads(threads, [&](ExecContext& context) {
          pack_linear(context, format, {from.qweight, from.groups, from.input_perm},
                      tensors_of(out));
        });
      },
      nb::arg("threads"), nb::arg("format"), nb::arg("plain"), nb::arg("out"), WithoutGil());
  module.def(
      "unpack_linear",
      [](const PackedFormat& format, const PackedMemory& packed, const PackedMemory& out) {
        const PackedTensors to = tensors_of(out);
        unpack_linear(format, tensors_of(packed), {to.qweight, to.groups, to.input_perm});
      },
      nb::arg("format"), nb::arg("packed"), nb::arg("out"), WithoutGil());
  module.def(
      "dequantize_linear",
      [](const PackedFormat& format, const PackedMemory& packed, bool is_low, const Memory& out) {
        dequantize_linear(format, tensors_of(packed), precision_of(is_low), memory_of(out));
      },
      nb::arg("format"), nb::arg("packed"), nb::arg("is_low"), nb::arg("out"), WithoutGil());
  module.def(
      "plan_block_inputs",
      [](std::pair<int64_t, int64_t> shape, double s8_share, const Memory& abs_max,
         const Memory& rms, const Memory& w) {
        BlockInputs plan = plan_block_inputs(shape.first, shape.second, s8_share,
                                             memory_of(abs_max), memory_of(rms), memory_of(w));
        return std::pair(std::move(plan.input_perm), plan.num_s8_inputs);
      },
      nb::arg("shape"), nb::arg("s8_share"), nb::arg("abs_max"), nb::arg("rms"), nb::arg("w"),
      WithoutGil());
}

/// address, rows, columns, row stride
using Rows = std::vector<int64_t>;

DeviceMatrix device_matrix(const Rows& rows, bool is_bf16) {
  constexpr size_t kNumMembers = 4;
  if (rows.size() != kNumMembers) throw nb::value_error("expected four numbers of a matrix");
  return {static_cast<uintptr_t>(rows[0]), is_bf16 ? DType::kBf16 : DType::kF16, rows[1], rows[2],
          rows[3]};
}

void bind_linear(nb::module_& module) {
  nb::class_<CpuLinear>(module, "CpuLinear")
      .def(
          "__init__",
          [](CpuLinear* linear, const PackedFormat& format, bool is_low) {
            new (linear) CpuLinear(format, precision_of(is_low));
          },
          nb::arg("format"), nb::arg("is_low"))
      .def(
          "run",
          [](const CpuLinear& linear, int threads, const PackedMemory& weight, const Memory& bias,
             const Memory& x, const Memory& y) {
            linear.run(threads, tensors_of(weight), memory_of(bias), memory_of(x), memory_of(y));
          },
          nb::arg("threads"), nb::arg("weight"), nb::arg("bias"), nb::arg("x"), nb::arg("y"),
          WithoutGil());
  nb::class_<CudaLinear>(module, "CudaLinear")
      .def("workspace_bytes", &CudaLinear::workspace_bytes, nb::arg("M"))
      .def(
          "run",
          [](const CudaLinear& linear, bool is_bf16, const std::pair<Rows, Rows>& matrices,
             const Memory& workspace, uintptr_t stream, bool is_low) {
            linear.run(device_matrix(matrices.first, is_bf16),
                       device_matrix(matrices.second, is_bf16), memory_of(workspace), stream,
                       precision_of(is_low));
          },
          nb::arg("is_bf16"), nb::arg("matrices"), nb::arg("workspace"), nb::arg("stream"),
          nb::arg("is_low"), WithoutGil())
      .def("describe", &CudaLinear::describe)
      .def("device_bytes", &CudaLinear::device_bytes);
  module.def(
      "load_cuda_linear",
      [](int device, bool is_bf16, const PackedFormat& format, const PackedMemory& weight,
         const Memory& bias) {
        return load_cuda_linear(device, is_bf16 ? DType::kBf16 : DType::kF16, format,
                                tensors_of(weight), memory_of(bias));
      },
      nb::arg("device"), nb::arg("is_bf16"), nb::arg("format"), nb::arg("weight"), nb::arg("bias"),
      WithoutGil());
}

}  // namespace

void bind_torch(nb::module_& module) {
  bind_format(module);
  bind_packing(module);
  bind_linear(module);
}

}  // namespace halley::python
