#include "halley/quant/base/linear_loader.h"

#include <algorithm>
#include <chrono>
#include <span>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/quant/base/open_section.h"
#include "halley/quant/base/self_check.h"

namespace halley {
namespace {

GemmProblem problem_of(const OpenSection& section) {
  const WeightDesc& desc = section.desc();
  return {.w_layout = desc.layout,
          .N = section.out_features(),
          .K = section.in_features,
          .group_size = desc.group_size,
          .zero_kind = desc.zero_kind,
          .has_input_perm = desc.has_input_perm,
          .activation = desc.activation};
}

/// Adds the layer's name to the error of a kernel choice.
KernelChoice choose_kernel(const LinearLoading& loading, const GemmProblem& problem,
                           const std::string& name) {
  try {
    return choose_gemm_kernel(problem, loading.demands);
  } catch (const InputError& error) {
    throw InputError(str("layer ", quote(name), ": ", error.what()));
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(str("layer ", quote(name), ": ", error.what()));
  }
}

LinearPlan plan_section(const LinearLoading& loading, const OpenSection& section) {
  LinearPlan plan;
  for (const OpenPart& part : section.parts) {
    plan.stored_bytes += part.weight->desc().stored_bytes;
    const auto& warnings = part.weight->warnings();
    plan.warnings.insert(plan.warnings.end(), warnings.begin(), warnings.end());
  }
  plan.name = section.display_name();
  plan.weight = section.desc();
  plan.out_features = section.out_features();
  plan.in_features = section.in_features;
  const auto num_weights = static_cast<double>(plan.out_features * plan.in_features);
  plan.bits_per_weight = num_weights == 0 ? 0 : 8 * plan.stored_bytes / num_weights;
  const WeightDesc& desc = plan.weight;
  plan.packed_bytes = packed_bytes(desc.layout, plan.out_features, plan.in_features);
  if (is_quantized(desc.layout)) {
    plan.packed_bytes += group_bytes(plan.out_features, plan.in_features, desc.group_size);
  }
  if (!loading.has_cpu_kernels) return plan;
  const GemmProblem problem = problem_of(section);
  KernelChoice choice = choose_kernel(loading, problem, plan.name);
  plan.kernel = choice.kernel;
  plan.rejections = std::move(choice.rejections);
  if (has_low_precision(desc.layout)) {
    KernelChoice low = choose_kernel(loading, low_problem(problem), plan.name);
    plan.low_kernel = low.kernel;
    plan.rejections.insert(plan.rejections.end(), low.rejections.begin(), low.rejections.end());
  }
  return plan;
}

/// Adds the seconds of its life to `total`.
class Stopwatch {
 public:
  explicit Stopwatch(double* total) : total_(total) {}
  ~Stopwatch() {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    *total_ += seconds.count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double* total_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// Touches every page of the section's tensors, on all threads: reading becomes a step of its own
/// whose time can be measured, and the disk sees several readers.
void read_tensors(ExecContext& context, const LinearLoading& loading, const OpenSection& section) {
  constexpr int64_t kTaskBytes = 1 << 20;
  constexpr int64_t kPageBytes = 4096;
  std::vector<std::span<const std::byte>> tasks;
  for (const OpenPart& part : section.parts) {
    // A slice reads what it needs when it is packed.
    if (part.is_slice) continue;
    for (const std::string& name : part.weight->desc().tensor_names) {
      const TensorInfo* info = loading.source.find(name);
      if (info == nullptr) continue;
      const std::byte* data = loading.source.view(*info).data;
      const auto num_bytes = static_cast<int64_t>(info->num_bytes);
      for (int64_t begin = 0; begin < num_bytes; begin += kTaskBytes) {
        const int64_t end = std::min(num_bytes, begin + kTaskBytes);
        tasks.emplace_back(data + begin, data + end);
      }
    }
  }
  context.pool.run(static_cast<int64_t>(tasks.size()), [&](int64_t task, int) {
    const auto bytes = tasks[static_cast<size_t>(task)];
    const auto num_bytes = static_cast<int64_t>(bytes.size());
    for (int64_t i = 0; i < num_bytes; i += kPageBytes) {
      [[maybe_unused]] const volatile std::byte touched = bytes[static_cast<size_t>(i)];
    }
  });
}

/// Reads the checkpoint's tensors, which are still there.
void check_kernels(ExecContext& context, const OpenSection& section,
                   const LinearOp::Section& packed) {
  const auto indices = checked_outputs(packed.weight.N, kCheckedOutputs);
  for (const GemmKernel* kernel : {packed.kernel, packed.low_kernel}) {
    if (kernel == nullptr) continue;
    const auto outputs = read_outputs(context, section, indices, kernel->precision);
    self_check(context, section.display_name(), packed.weight, *kernel, outputs);
  }
}

}  // namespace

std::vector<LinearPlan> plan_linear(const LinearLoading& loading, const LinearSpec& spec) {
  std::vector<LinearPlan> plans;
  for (const OpenSection& section : open_sections(loading.scheme, loading.source, spec)) {
    plans.push_back(plan_section(loading, section));
  }
  return plans;
}

LinearOp load_linear(ExecContext& context, const LinearLoading& loading, const LinearSpec& spec) {
  HALLEY_CHECK(loading.has_cpu_kernels, spec.display_name());
  const std::vector<OpenSection> sections = open_sections(loading.scheme, loading.source, spec);
  LoadTimes unused;
  LoadTimes& times = loading.times == nullptr ? unused : *loading.times;
  std::vector<LinearOp::Section> packed;
  for (const OpenSection& section : sections) {
    const LinearPlan plan = plan_section(loading, section);
    LinearOp::Section result;
    result.kernel = plan.kernel;
    result.low_kernel = plan.low_kernel;
    {
      const Stopwatch watch(&times.read);
      read_tensors(context, loading, section);
    }
    {
      const Stopwatch watch(&times.pack);
      result.weight = pack_section(context, section);
    }
    if (loading.has_self_check) {
      const Stopwatch watch(&times.self_check);
      check_kernels(context, section, result);
    }
    release_tensors(loading.source, section);
    packed.push_back(std::move(result));
  }
  return {std::move(packed), read_bias(loading.source, sections)};
}

std::vector<std::string> linear_tensor_names(const LinearLoading& loading, const LinearSpec& spec) {
  std::vector<std::string> names;
  for (const OpenSection& section : open_sections(loading.scheme, loading.source, spec)) {
    for (const OpenPart& part : section.parts) {
      const auto& own = part.weight->desc().tensor_names;
      names.insert(names.end(), own.begin(), own.end());
      if (part.bias != nullptr) names.push_back(part.bias->name);
    }
  }
  return names;
}

}  // namespace halley
