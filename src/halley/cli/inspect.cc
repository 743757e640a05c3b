// `halley inspect`: shows a checkpoint and the kernels that would run it; reads headers only,
// or the weights as a stream where the layers that a method applies to are asked for.
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cli/command.h"
#include "halley/cli/inspect_activations.h"
#include "halley/cli/inspect_nested.h"
#include "halley/cli/inspect_ranks.h"
#include "halley/cli/model_options.h"
#include "halley/cli/named_model.h"
#include "halley/cli/progress.h"
#include "halley/core/thread_pool.h"
#include "halley/models/all/load_model.h"
#include "halley/models/all/plan_json.h"
#include "halley/quant/inspection/activation_json.h"

namespace halley::cli {
namespace {

struct InspectOptions {
  ModelOptions model;
  bool is_json = false;
  bool is_verbose = false;
  bool is_nested = false;
  ActivationOptions activations;
  int threads = 0;
  int tensor_parallel_size = 1, pipeline_parallel_size = 1;
};

/// "gemm_f16_hwy", or the names of the kernels for full and for low precision.
std::string kernel_names(const LinearPlan& plan) {
  if (plan.kernel == nullptr) return "-";
  return plan.low_kernel == nullptr ? plan.kernel->name
                                    : str(plan.kernel->name, ", low ", plan.low_kernel->name);
}

std::string kernel_names(const GpuLinearPlan& plan) {
  return plan.low_kernel.empty() ? plan.kernel : str(plan.kernel, ", low ", plan.low_kernel);
}

/// "4 bits g128 sym", "f8_e4m3 g128", "f16".
std::string stored_as(const LinearPlan& plan) {
  const WeightDesc& weight = plan.weight;
  if (has_low_precision(weight.layout)) return "f16 in two planes";
  if (!is_quantized(weight.layout)) return name_of(weight.stored_dtype);
  const bool is_e2m1 = weight.layout == PackedLayout::kE2m1Quad;
  const bool is_float = is_e2m1 || weight.layout == PackedLayout::kF8E4M3Quad;
  std::string text =
      is_float ? name_of(is_e2m1 ? DType::kF4 : DType::kF8E4M3) : str(weight.bits, " bits");
  text += weight.group_size >= plan.in_features ? " channel" : str(" g", weight.group_size);
  if (!is_float) text += weight.is_symmetric ? " sym" : " asym";
  if (weight.has_input_perm) text += " order";
  if (weight.activation != ActivationQuant::kNone) text += str(" x:", weight.activation);
  return text;
}

void print_header(const ModelPlan& plan, const std::string& name) {
  const DecoderConfig& config = plan.config;
  std::printf("%s: family %s, weights %s, format %s%s\n", name.c_str(), config.family.c_str(),
              name_of(config.dtype), plan.format.c_str(),
              plan.summary.empty() ? "" : str(" (", plan.summary, ")").c_str());
  std::printf(
      "layers %lld, hidden %lld, MLP %lld, heads %lld query / %lld kv of %lld, "
      "vocabulary %lld, positions %lld\n",
      static_cast<long long>(config.num_layers), static_cast<long long>(config.hidden_size),
      static_cast<long long>(config.intermediate_size), static_cast<long long>(config.num_heads),
      static_cast<long long>(config.num_kv_heads), static_cast<long long>(config.head_dim),
      static_cast<long long>(config.vocab_size), static_cast<long long>(config.max_positions));
  for (const std::string& warning : plan.warnings) std::printf("warning: %s\n", warning.c_str());
}

void print_parts(const ModelPlan& plan, bool is_verbose) {
  std::printf("\n%-44s %-18s %-26s %15s %10s %6s  %s\n", "part", "format", "stored", "shape",
              "bytes", "vs f16", "kernel");
  for (const ModelPart& part : plan.parts) {
    if (part.kind == "norm") continue;
    for (const LinearPlan& linear : part.plans) {
      const std::string name = part.plans.size() == 1 ? part.name : str("  ", linear.name);
      std::printf("%-44s %-18s %-26s %15s %10s %5.2fx  %s\n", name.c_str(), linear.weight.format,
                  stored_as(linear).c_str(),
                  str(linear.out_features, " x ", linear.in_features).c_str(),
                  format_bytes(static_cast<double>(linear.packed_bytes)).c_str(),
                  compression(linear), kernel_names(linear).c_str());
      if (!is_verbose) continue;
      for (const std::string& rejection : linear.rejections) {
        std::printf("    not %s\n", rejection.c_str());
      }
    }
  }
}

void print_gpu_parts(const ModelPlan& plan, bool is_verbose) {
  std::printf("\n%-44s %15s %10s  %-24s %s\n", "part", "shape", "bytes", "kernel", "form");
  for (const ModelPart& part : plan.parts) {
    for (const GpuLinearPlan& linear : part.gpu_plans) {
      const std::string name = part.gpu_plans.size() == 1 ? part.name : str("  ", linear.name);
      std::printf("%-44s %15s %10s  %-24s %s\n", name.c_str(),
                  str(linear.out_features, " x ", linear.in_features).c_str(),
                  format_bytes(static_cast<double>(linear.device_bytes)).c_str(),
                  kernel_names(linear).c_str(), linear.form.c_str());
      if (!is_verbose) continue;
      for (const std::string& rejection : linear.rejections) {
        std::printf("    not %s\n", rejection.c_str());
      }
    }
  }
}

/// The share of each kernel, and why preferred kernels were rejected.
void print_totals(const ModelPlan& plan) {
  struct Use {
    int num_weights = 0;
    double num_bytes = 0;
  };
  std::map<std::string, Use> kernels;
  std::map<std::string, int> mma_kernels;
  std::map<std::string, int> rejections;
  for (const ModelPart& part : plan.parts) {
    for (const LinearPlan& linear : part.plans) {
      for (const GemmKernel* kernel : {linear.kernel, linear.low_kernel}) {
        if (kernel == nullptr || plan.device != "cpu") continue;
        Use& use = kernels[kernel->name];
        ++use.num_weights;
        use.num_bytes +=
            static_cast<double>(linear.packed_bytes) / (kernel == linear.low_kernel ? 2 : 1);
      }
      if (plan.device != "cpu") continue;
      for (const std::string& rejection : linear.rejections) ++rejections[rejection];
    }
    for (const GpuLinearPlan& linear : part.gpu_plans) {
      Use& use = kernels[linear.kernel];
      ++use.num_weights;
      use.num_bytes += static_cast<double>(linear.device_bytes);
      if (!linear.mma_kernel.empty()) ++mma_kernels[linear.mma_kernel];
      for (const std::string& rejection : linear.rejections) ++rejections[rejection];
    }
  }
  std::printf("\n");
  for (const auto& [name, use] : kernels) {
    std::printf("%-20s %5d weights %10s\n", name.c_str(), use.num_weights,
                format_bytes(use.num_bytes).c_str());
  }
  for (const auto& [name, count] : mma_kernels) {
    std::printf("%-20s %5d weights on compute capability 8.0 to 8.9, by the C library alone\n",
                name.c_str(), count);
  }
  for (const auto& [rejection, count] : rejections) {
    std::printf("not %s (%d weights)\n", rejection.c_str(), count);
  }
  const auto packed_bytes = static_cast<double>(plan.packed_bytes);
  std::printf("stored %s, in memory %s, %.2fx smaller than f16; KV cache %s a token\n",
              format_bytes(static_cast<double>(plan.stored_bytes)).c_str(),
              format_bytes(packed_bytes).c_str(),
              packed_bytes == 0 ? 0 : static_cast<double>(plan.f16_bytes) / packed_bytes,
              format_bytes(static_cast<double>(plan.kv_bytes_per_token)).c_str());
}

/// A plan needs a build with CUDA, but no GPU.
DeviceChoice planned_device(const std::string& device) {
  if (device.starts_with("cuda") && is_built_with_cuda()) return {.device = "cuda"};
  return choose_device(device);
}

NestedFit nested_fit_of(const InspectOptions& options, const ModelFiles& files,
                        const ModelPlan& plan) {
  if (plan.format != "none") {
    throw InputError(str("--", kNestedFitName, ": expected a checkpoint in full precision, got ",
                         "format ", plan.format, ". Name the checkpoint that it was made from."));
  }
  ThreadPool pool(num_threads_of(options.threads));
  ExecContext context{pool};
  ProgressBar bar("reading");
  return measure_nested_fit(context, plan.config, *files.source, [&](size_t done, size_t total) {
    bar.update(static_cast<double>(done), static_cast<double>(total));
  });
}

/// Plans every rank. `whole` becomes the plan of rank 0, with the shape of the whole model.
std::vector<RankHoldings> plan_ranks(const InspectOptions& options, const ModelFiles& files,
                                     LoadOptions load, ModelPlan& whole) {
  const int num_ranks = options.tensor_parallel_size, num_stages = options.pipeline_parallel_size;
  std::vector<RankHoldings> ranks;
  ModelPlan first;
  for (int rank = 0; rank < num_ranks * num_stages; ++rank) {
    load.share = {.rank = rank % num_ranks,
                  .num_ranks = num_ranks,
                  .stage = rank / num_ranks,
                  .num_stages = num_stages,
                  .has_whole_experts = options.model.ranks.has_whole_experts};
    ModelPlan plan = plan_model(files.config, *files.source, load);
    ranks.push_back(holdings_of(plan, whole));
    if (rank == 0) first = std::move(plan);
  }
  first.stored_bytes = static_cast<size_t>(ranks.front().stored_bytes);
  first.config = std::move(whole.config);
  whole = std::move(first);
  return ranks;
}

int run_inspect(const InspectOptions& options) {
  const ModelFiles files = open_model_files(options.model);
  const LoadOptions load =
      load_options_of(options.model, files, planned_device(options.model.device));
  ModelPlan plan = plan_model(files.config, *files.source, load);
  std::vector<RankHoldings> ranks;
  if (options.tensor_parallel_size * options.pipeline_parallel_size > 1) {
    ranks = plan_ranks(options, files, load, plan);
  }
  std::optional<NestedFit> fit;
  if (options.is_nested) fit = nested_fit_of(options, files, plan);
  std::optional<ActivationReport> activations;
  if (options.activations.is_asked) {
    activations =
        inspect_activations(options.activations, options.model, files, plan, options.threads);
  }
  if (options.is_json) {
    OrderedJson json = to_json(plan);
    if (fit) json[kNestedFitName] = nested_fit_json(*fit);
    if (activations) json["activations"] = summary_json(*activations);
    if (!ranks.empty()) json["ranks"] = holdings_json(ranks);
    std::cout << json.dump() << '\n';
    return kExitOk;
  }
  print_header(plan, files.source->description());
  if (fit) {
    print_nested_fit(*fit);
    if (!activations) return kExitOk;
  }
  if (activations) {
    print_activations(*activations, options.activations);
    return kExitOk;
  }
  if (plan.device == "cpu") {
    print_parts(plan, options.is_verbose);
  } else {
    print_gpu_parts(plan, options.is_verbose);
  }
  print_totals(plan);
  if (!ranks.empty()) print_holdings(ranks);
  return kExitOk;
}

}  // namespace

Run add_inspect(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand(
      "inspect",
      str("Show family, shapes, formats, bytes and kernels of a checkpoint; reads no weights but "
          "for --",
          kNestedFitName, " and --activations"));
  auto options = std::make_shared<InspectOptions>();
  add_source_options(app, options->model);
  add_device_option(app, options->model, "cpu");
  app.add_flag("--json", options->is_json, "One JSON object");
  app.add_flag("--verbose", options->is_verbose, "Also each layer's rejected kernels");
  app.add_flag(str("--", kNestedFitName), options->is_nested, kNestedFitDescription);
  add_activation_options(app, options->activations);
  app.add_option("--tensor-parallel-size", options->tensor_parallel_size,
                 "Also what each of as many ranks holds; parts, kernels and bytes are those of "
                 "rank 0 then")
      ->check(CLI::Range(1, kRanksMax))
      ->capture_default_str();
  app.add_option("--pipeline-parallel-size", options->pipeline_parallel_size,
                 "The same for as many stages of such ranks")
      ->check(CLI::Range(1, kRanksMax))
      ->capture_default_str();
  add_expert_option(app, options->model.ranks);
  add_threads_option(app, options->threads);
  const std::string examples = R"(Examples:
  halley inspect models/demo-21m
  halley inspect --load-format dummy --config llama-3-8b --json
  HALLEY_KERNEL=gemm_w4a32_hwy halley inspect MODEL
  halley inspect MODEL --device cuda
  halley inspect --load-format dummy --config llama-3-70b --tensor-parallel-size 8
  halley inspect MODEL --quant-override '*.down_proj=none'
  halley inspect MODEL --activations --calibrate TEXT --out FOLDER --layers 0,3-5
)";
  app.footer(str(examples, "  halley inspect MODEL --", kNestedFitName));
  return [options] {
    find_model(options->model);
    return run_inspect(*options);
  };
}

}  // namespace halley::cli
