// `halley formats`: which checkpoints load, and the kernels that run them, from the tables
// themselves.
#include "halley/quant/all/formats.h"

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "halley/base/str.h"
#include "halley/cli/command.h"
#ifdef HALLEY_HAS_CUDA
#include "halley/cuda/gemm/cuda_gemm.h"
#include "halley/cuda/weights/device_gemm.h"
#endif
#include "halley/kernels/gemm/gemm.h"

namespace halley::cli {
namespace {

/// The kernels that run the problem on any machine, preferred ones first. The table is the same
/// everywhere.
std::vector<std::string> kernels_for(const GemmProblem& problem) {
  std::vector<std::string> names;
  for (const GemmKernel& kernel : cpu_gemm_kernels()) {
    if (kernel.w_layout != problem.w_layout) continue;
    if (kernel.needs != nullptr) {
      names.push_back(str("`", kernel.name, "` (", kernel.needs, ")"));
    } else if (kernel.why_not(problem).empty()) {
      names.push_back(str("`", kernel.name, "`"));
    }
  }
  return names;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += str(text.empty() ? "" : ", ", name);
  return text;
}

/// The kernel with which a GPU of compute capability 9.0 runs such a weight, or else the weight's
/// storage format there, by the same rules that load it, for f16 activations (f32 if the weight is
/// f32). The kernel of older GPUs follows, if there is one: the engine does not run there. "" in
/// builds without CUDA.
std::string on_cuda([[maybe_unused]] const GemmProblem& problem) {
#ifdef HALLEY_HAS_CUDA
  const auto kernel = [](const std::string& name) { return str("`", name, "`"); };
  const auto before_hopper = [](const std::string& name) {
    return name.empty() ? name : str("; C library only, 8.0 to 8.9: `", name, "`");
  };
  const bool is_nested = problem.w_layout == PackedLayout::kNestedF16Quad;
  if (is_nested && problem.precision == Precision::kLow) {
    const auto low = cuda::nested_low_problem(problem.N, problem.K, /*has_bias=*/false);
    return kernel(cuda::choose_cuda_gemm_kernel(low, nullptr).kernel->name);
  }
  const cuda::GemmDesc desc = cuda::hopper_desc(problem, DType::kF16, cuda::LinearUse::kAlone);
  const cuda::DeviceGemmChoice choice = cuda::choose_device_gemm(desc);
  cuda::CudaLinearPlan plan;
  choice.gemm->plan(*choice.gemm, desc, choice.reasons, &plan);
  if (choice.gemm->layout == cuda::DeviceLayout::kCodes) return str("quantized, ", plan.row_dtype);
  if (choice.gemm->layout == cuda::DeviceLayout::kFloats) {
    const bool is_dense =
        !is_quantized(problem.w_layout) && problem.w_layout != PackedLayout::kNestedF16Quad;
    return is_dense ? "as it is" : "dequantized to 16 bits";
  }
  return kernel(plan.kernel) + before_hopper(plan.mma_kernel);
#else
  return {};
#endif
}

void print_table() {
  std::printf(
      "| format | stored | activations | CPU | CUDA, compute capability 9.0 "
      "|\n|---|---|---|---|---|\n");
  for (const QuantFormat* format : quant_formats()) {
    for (const FormatOption& option : format->options) {
      const ActivationQuant activation = option.problem.activation;
      const bool is_rounded = activation != ActivationQuant::kNone;
      const std::string cuda = on_cuda(option.problem);
      std::printf("| %s | %s | %s | %s | %s |\n", format->name, option.stored,
                  is_rounded ? name_of(activation) : "",
                  joined(kernels_for(option.problem)).c_str(), cuda.empty() ? "-" : cuda.c_str());
    }
  }
}

OrderedJson json_table() {
  OrderedJson rows = OrderedJson::array();
  for (const QuantFormat* format : quant_formats()) {
    for (const FormatOption& option : format->options) {
      rows.push_back({{"format", format->name},
                      {"stored", option.stored},
                      {"activations", name_of(option.problem.activation)},
                      {"cpu", kernels_for(option.problem)},
                      {"cuda", on_cuda(option.problem)}});
    }
  }
  return rows;
}

}  // namespace

Run add_formats(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand(
      "formats", "List checkpoint formats and the kernels that run them, preferred ones first");
  auto is_json = std::make_shared<bool>(false);
  app.add_flag("--json", *is_json, "A JSON array instead of a Markdown table");
  app.footer(R"(Examples:
  halley formats)");
  return [is_json] {
    if (*is_json) {
      std::cout << json_table().dump() << '\n';
    } else {
      print_table();
    }
    return kExitOk;
  };
}

}  // namespace halley::cli
