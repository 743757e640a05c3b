#include "halley/quant/base/self_check.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "halley/base/error.h"
#include "halley/core/thread_pool.h"
#include "halley/quant/base/open_section.h"
#include "halley/quant/base/stored_outputs.h"

namespace halley {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;

/// A weight as a checkpoint may store it: codes in rows, groups of 32 inputs, an order.
class WeightInRows : public StoredWeight {
 public:
  WeightInRows(WeightDesc desc, int64_t N, int64_t K)
      : StoredWeight(std::move(desc)), N_(N), K_(K), order_(static_cast<size_t>(K)) {
    std::iota(order_.begin(), order_.end(), 0);
    std::shuffle(order_.begin(), order_.end(), std::mt19937(3));
    for (int64_t i = 0; i < N * K; ++i) values_.push_back(static_cast<float>(i * 7 % 13 - 6));
  }

  TensorView dense_rows() const override {
    return {reinterpret_cast<const std::byte*>(values_.data()), DType::kF32, {N_, K_}};
  }
  std::vector<int32_t> input_perm() const override { return order_; }
  void read_codes(const CodeBlock& block, uint8_t* quads) const override {
    read(block, quads, [&](int64_t n, int64_t k) { return code(n, k); });
  }
  /// Two planes: 1 + 8 * 2^-10 everywhere, of which the upper byte alone is 1.
  void read_lower(const CodeBlock& block, uint8_t* quads) const override {
    read(block, quads, [](int64_t, int64_t) { return uint8_t{0x08}; });
  }
  void read_groups(int64_t row_begin, int64_t num_rows, float* groups) const override {
    for (int64_t g = 0; g < (K_ + desc().group_size - 1) / desc().group_size; ++g) {
      for (int64_t n = 0; n < num_rows; ++n) {
        groups[g * 2 * kPanelRows + n] = 0.01f * static_cast<float>((row_begin + n + g) % 5 + 1);
        groups[g * 2 * kPanelRows + kPanelRows + n] = static_cast<float>((row_begin + n) % 7);
      }
    }
  }

 private:
  template <class CodeOf>
  static void read(const CodeBlock& block, uint8_t* quads, const CodeOf& code_of) {
    for (int64_t n = block.row_begin; n < block.row_begin + block.num_rows; ++n) {
      for (int64_t k = block.k_begin; k < block.k_end; ++k) {
        *code_at(quads, block, n, k) = code_of(n, k);
      }
    }
  }
  uint8_t code(int64_t n, int64_t k) const {
    if (has_low_precision(desc().layout)) return 0x78;
    const int num_codes = desc().bits == 8 ? 120 : 1 << desc().bits;  // 120: e4m3 is finite
    return static_cast<uint8_t>((n * K_ + k) * 37 % 1009 % num_codes);
  }

  int64_t N_, K_;
  std::vector<int32_t> order_;
  std::vector<float> values_;
};

WeightDesc desc_of(PackedLayout layout) {
  WeightDesc desc;
  desc.layout = layout;
  return desc;
}

WeightDesc quantized_desc(PackedLayout layout, ActivationQuant activation) {
  WeightDesc desc = desc_of(layout);
  const bool has_bytes = layout == PackedLayout::kU8Quad || layout == PackedLayout::kF8E4M3Quad;
  desc.bits = has_bytes                         ? 8
              : layout == PackedLayout::kU4Quad ? 4
              : layout == PackedLayout::kU3Quad ? 3
                                                : 2;
  desc.group_size = 32;
  desc.has_input_perm = true;
  desc.activation = activation;
  desc.activation_scale = 0.125f;
  desc.num_s8_inputs = 128;
  desc.s4_clip = 0.75f;
  return desc;
}

/// A layer of two parts, and its packed weight.
class SelfCheck : public testing::Test {
 protected:
  void open(const WeightDesc& desc, int64_t N, int64_t K) {
    const int64_t first = N / 3;
    spec_ = {.parts = {{.name = "a", .out_features = first, .stored_rows = first},
                       {.name = "b", .out_features = N - first, .stored_rows = N - first}},
             .in_features = K};
    section_ = {.parts = {}, .in_features = K};
    for (const LinearSpec::Part& part : spec_.parts) {
      section_.parts.push_back(
          {.spec = &part, .weight = std::make_unique<WeightInRows>(desc, part.out_features, K)});
    }
    weight_ = pack_section(context_, section_);
  }
  void open_dense(int64_t N, int64_t K) { open(desc_of(PackedLayout::kF32Panel), N, K); }
  void check(const GemmKernel& kernel, const std::string& layer = "a") {
    self_check(context_, layer, weight_, kernel,
               read_outputs(context_, section_, checked_outputs(weight_.N, kCheckedOutputs),
                            kernel.precision));
  }
  const GemmKernel& kernel() const { return find_gemm_kernel(problem_of(weight_)); }

  ThreadPool pool_{2};
  ExecContext context_{pool_};
  LinearSpec spec_;
  OpenSection section_;
  PackedWeight weight_;
};

constexpr PackedLayout kQuadLayouts[] = {PackedLayout::kU2Quad, PackedLayout::kU3Quad,
                                         PackedLayout::kU4Quad, PackedLayout::kU8Quad,
                                         PackedLayout::kF8E4M3Quad};

TEST_F(SelfCheck, PassesEveryKernelOnEveryActivation) {
  using enum ActivationQuant;
  int num_checks = 0;
  for (const PackedLayout layout : kQuadLayouts) {
    for (const ActivationQuant activation :
         {kNone, kS8Token, kS8Static, kE4m3Token, kE4m3Group128, kE4m3Static, kS4S8Block128}) {
      open(quantized_desc(layout, activation), 70, 300);
      for (const GemmKernel& kernel : cpu_gemm_kernels()) {
        if (!kernel.why_not(problem_of(weight_)).empty()) continue;
        EXPECT_NO_THROW(check(kernel)) << kernel.name << " " << activation;
        ++num_checks;
      }
    }
  }
  EXPECT_GE(num_checks, 12);
}

TEST_F(SelfCheck, ChecksEachKernelOfTwoPrecisionsInItsOwn) {
  open(desc_of(PackedLayout::kNestedF16Quad), 70, 300);
  const GemmKernel& low = find_gemm_kernel(low_problem(problem_of(weight_)));
  EXPECT_NO_THROW(check(kernel()));
  EXPECT_NO_THROW(check(low));
  GemmKernel wrong = low;
  wrong.precision = Precision::kFull;
  EXPECT_THROW(check(wrong), DeviceError);
}

TEST_F(SelfCheck, PassesLayersWithoutInputsOrOutputs) {
  open_dense(0, 4);
  EXPECT_NO_THROW(check(kernel()));
  open_dense(4, 0);
  EXPECT_NO_THROW(check(kernel()));
}

/// Exchanges two equal pieces of memory.
void exchange(HostBuffer& memory, size_t a, size_t b, size_t num_bytes) {
  std::swap_ranges(memory.data() + a, memory.data() + a + num_bytes, memory.data() + b);
}

/// The kernel reads wrong packing as well as right packing: only the checkpoint tells.
TEST_F(SelfCheck, NoticesCodesInWrongPlaces) {
  for (const PackedLayout layout : kQuadLayouts) {
    open(quantized_desc(layout, ActivationQuant::kNone), 70, 300);
    const auto unit_bytes = static_cast<size_t>(packed_bytes(layout, kPanelRows, kQuadUnitInputs));
    exchange(weight_.data, 0, unit_bytes, unit_bytes);
    EXPECT_THAT([&] { check(kernel()); },
                ThrowsMessage<DeviceError>(HasSubstr("row 0, output 0: expected ")))
        << layout;
  }
}

TEST_F(SelfCheck, NoticesRowsInWrongPlaces) {
  open_dense(70, 300);
  const size_t panel_bytes = packed_bytes(weight_.layout, kPanelRows, weight_.K);
  exchange(weight_.data, 0, panel_bytes, panel_bytes);
  EXPECT_THROW(check(kernel()), DeviceError);
}

TEST_F(SelfCheck, NoticesGroupsInWrongPlaces) {
  open(quantized_desc(PackedLayout::kU4Quad, ActivationQuant::kNone), 70, 300);
  const size_t group_bytes = 2 * kPanelRows * sizeof(float);
  exchange(weight_.quant.groups, 0, group_bytes, group_bytes);
  EXPECT_THROW(check(kernel()), DeviceError);
}

TEST_F(SelfCheck, NoticesAWrongOrderOfInputs) {
  open(quantized_desc(PackedLayout::kU4Quad, ActivationQuant::kNone), 70, 300);
  std::reverse(weight_.quant.input_perm.begin(), weight_.quant.input_perm.end());
  EXPECT_THROW(check(kernel()), DeviceError);
}

TEST_F(SelfCheck, NoticesExchangedPlanes) {
  open(desc_of(PackedLayout::kNestedF16Quad), 70, 300);
  const size_t plane_bytes = packed_bytes(weight_.layout, kPanelRows, weight_.K) / 2;
  exchange(weight_.data, 0, plane_bytes, plane_bytes);
  EXPECT_THROW(check(kernel()), DeviceError);
}

void wrong_output(ExecContext&, const PackedWeight&, const float*, ConstMatrix, Matrix y) {
  for (int64_t m = 0; m < y.num_rows; ++m) std::memset(y.row<float>(m), 0, 4 * 40);
}

void nan_output(ExecContext&, const PackedWeight&, const float*, ConstMatrix, Matrix y) {
  for (int64_t m = 0; m < y.num_rows; ++m) std::memset(y.row<float>(m), 0xFF, 4 * 40);
}

TEST_F(SelfCheck, StopsAWrongKernelByName) {
  open_dense(40, 33);
  GemmKernel wrong = kernel();
  wrong.name = "gemm_wrong";
  for (const auto launch : {wrong_output, nan_output}) {
    wrong.launch = launch;
    EXPECT_THAT([&] { check(wrong, "model.a"); },
                ThrowsMessage<DeviceError>(
                    StartsWith("self-check of layer \"model.a\": kernel gemm_wrong, row 0, output "
                               "0: expected ")));
  }
}

TEST_F(SelfCheck, NoticesASmallError) {
  static const GemmKernel* right = nullptr;
  open_dense(40, 1024);
  right = &kernel();
  GemmKernel wrong = *right;
  wrong.launch = [](ExecContext& context, const PackedWeight& w, const float* bias, ConstMatrix x,
                    Matrix y) {
    right->launch(context, w, bias, x, y);
    y.row<float>(1)[w.N - 1] += 1.0f;
  };
  EXPECT_THAT([&] { check(wrong); },
              ThrowsMessage<DeviceError>(HasSubstr("row 1, output 39: expected ")));
}

}  // namespace
}  // namespace halley
