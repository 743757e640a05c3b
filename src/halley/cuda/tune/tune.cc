#include "halley/cuda/tune/tune.h"

#include <algorithm>
#include <array>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/gemm/streamed_settings.h"
#include "halley/cuda/gemm/time_gemm.h"
#include "halley/cuda/hopper_tile/tile_settings.h"
#include "halley/cuda/mixed_gemm/mixed_settings.h"
#include "halley/cuda/mixed_gemm/time_mixed_gemm.h"
#include "halley/cuda/nested_gemm/nested_gemm.h"
#include "halley/cuda/nested_gemm/time_nested_gemm.h"
#include "halley/cuda/w4ax_gemm/time_w4ax_gemm.h"
#include "halley/cuda/w4ax_gemm/w4ax_gemm.h"

namespace halley::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{128} << 20;

std::string describe_mixed_plan(const TunedPlan& tuned, const CudaDeviceInfo& device) {
  const auto shape = mixed_shape_of(tuned.gemm, tuned.rows);
  if (!shape) return "";
  const MixedDevice mixed = {.num_sms = device.num_sms,
                             .shared_bytes_max = static_cast<int>(device.shared_bytes_max)};
  const auto plan = mixed_plan_of(*shape, mixed, tuned.settings);
  return plan ? str(*plan) : "";
}

template <const TileFamily& (*kFamily)()>
std::string describe_tile_plan(const TunedPlan& tuned, const CudaDeviceInfo& device) {
  const ProductShape shape = {.M = tuned.rows, .N = tuned.gemm.N, .K = tuned.gemm.K};
  const auto plan = tile_plan_of(kFamily(), shape, device, tuned.settings);
  return plan ? str(*plan) : "";
}

std::string describe_streamed_plan(const TunedPlan& tuned, const CudaDeviceInfo& device) {
  const auto shape = streamed_shape_of(tuned.gemm, tuned.rows);
  if (!shape) return "";
  const StreamedDevice streamed = {.num_sms = device.num_sms,
                                   .shared_bytes_max = static_cast<int>(device.shared_bytes_max)};
  const int split = choose_streamed(*shape, streamed).split;
  if (!streamed_choice_of(*shape, streamed, split, tuned.settings)) return "";
  std::string text;
  for (const auto& [name, value] : tuned.settings) {
    text += str(text.empty() ? "" : ", ", name, " ", value);
  }
  return text;
}

constexpr TunedKernel mixed(std::string_view name, std::string_view what, DType x_dtype,
                            std::string_view model_kernel) {
  return {.name = name,
          .what = what,
          .x_dtype = x_dtype,
          .model_kernel = model_kernel,
          .has_groups = true,
          .describe = describe_mixed_plan,
          .tune = tune_mixed_gemm};
}

constexpr TunedKernel streamed(std::string_view name, std::string_view what, DType x_dtype,
                               std::string_view model_kernel, int inputs_multiple) {
  return {.name = name,
          .what = what,
          .x_dtype = x_dtype,
          .model_kernel = model_kernel,
          .inputs_multiple = inputs_multiple,
          .describe = describe_streamed_plan,
          .tune = tune_streamed_gemm};
}

constexpr std::array kKernels = {
    mixed("u4_s8", "W4A8, a scale for each channel", DType::kI8, "gemm_w4a8_mixed"),
    mixed("u4_group_s8", "W4A8 in groups", DType::kI8, "gemm_w4a8_group_mixed"),
    mixed("u4_f16", "W4A16, f16", DType::kF16, "gemm_w4a16_mixed"),
    mixed("u4_bf16", "W4A16, bf16", DType::kBf16, "gemm_w4a16_mixed"),
    mixed("u8_f16", "W8A16, f16", DType::kF16, "gemm_w8a16_mixed"),
    mixed("u8_bf16", "W8A16, bf16", DType::kBf16, "gemm_w8a16_mixed"),
    TunedKernel{.name = "w4ax",
                .what = "W4Ax",
                .x_dtype = DType::kI8,
                .model_kernel = "gemm_w4ax_tile",
                .describe = describe_tile_plan<w4ax_family>,
                .tune = tune_w4ax_gemm},
    TunedKernel{.name = "nested_f16",
                .what = "f16 in two byte planes",
                .x_dtype = DType::kF16,
                .model_kernel = "gemm_nestedf16_tile",
                .describe = describe_tile_plan<nested_family>,
                .tune = tune_nested_gemm},
    streamed("streamed_f16", "f16, up to 64 rows", DType::kF16, "gemm_f16_", 64),
    streamed("streamed_bf16", "bf16, up to 64 rows", DType::kBf16, "gemm_bf16_", 64),
    streamed("streamed_fp8", "FP8, up to 64 rows", DType::kF8E4M3, "gemm_fp8_", 128),
    streamed("streamed_s8", "W8A8, up to 64 rows", DType::kI8, "gemm_s8_", 128),
};

constexpr std::array<int64_t, 16> kRows = {1,  2,   4,   8,   16,  32,  48,   64,
                                           96, 128, 192, 256, 384, 512, 1024, 2048};

}  // namespace

std::span<const TunedKernel> tuned_kernels() { return kKernels; }

const TunedKernel* find_tuned_kernel(std::string_view name) {
  const auto* found = std::find_if(kKernels.begin(), kKernels.end(),
                                   [&](const TunedKernel& kernel) { return kernel.name == name; });
  return found == kKernels.end() ? nullptr : &*found;
}

TunedGemm tuned_gemm_of(const TunedKernel& kernel, int64_t N, int64_t K, int64_t group_size) {
  TunedGemm gemm = {.kernel = std::string(kernel.name), .N = N, .K = K};
  if (!kernel.has_groups) return gemm;
  // Per-channel scales have no groups.
  if (kernel.name == name_of(MixedKind::kU4S8)) group_size = K;
  gemm.group_size = stored_group_size(K, group_size);
  return gemm;
}

std::span<const int64_t> tuned_rows() { return kRows; }

void check_tuned_plans(const TuningTable& table, const CudaDeviceInfo& device,
                       const std::string& where) {
  for (const TunedPlan& plan : table.plans()) {
    const TunedKernel* kernel = find_tuned_kernel(plan.gemm.kernel);
    if (kernel != nullptr && !kernel->describe(plan, device).empty()) continue;
    const auto in_words = [&] {
      return str(plan.gemm.kernel, ", N ", plan.gemm.N, ", K ", plan.gemm.K, ", ", plan.rows,
                 " rows");
    };
    throw InputError(str(where, ": ", in_words(), ": expected ",
                         kernel == nullptr
                             ? "a kernel that halley tune measures, got "
                             : "settings that this program can run, got other ones of ",
                         quote(plan.gemm.kernel), ". Write the file anew with halley tune."));
  }
}

std::vector<TunedPlan> tune_gemms(const CudaDeviceInfo& device, std::span<const TunedGemm> gemms,
                                  const std::vector<int64_t>& rows, const OnTunedPlan& on_plan) {
  const CudaStream stream;
  DeviceArena workspace(kWorkspaceBytes, "the workspace of GEMMs");
  const CudaContext context{device, stream, workspace};
  std::vector<TunedPlan> plans;
  for (const TunedGemm& gemm : gemms) {
    const TunedKernel* kernel = find_tuned_kernel(gemm.kernel);
    HALLEY_CHECK(kernel != nullptr, gemm.kernel);
    std::vector<TunedPlan> of_gemm = kernel->tune(context, gemm, rows, on_plan);
    plans.insert(plans.end(), of_gemm.begin(), of_gemm.end());
  }
  return plans;
}

}  // namespace halley::cuda
