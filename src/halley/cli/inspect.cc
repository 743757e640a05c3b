// `halley inspect`: what a checkpoint is and what would run, from headers alone.
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "halley/base/str.h"
#include "halley/cli/command.h"
#include "halley/cli/model_options.h"
#include "halley/models/all/load_model.h"

namespace halley::cli {
namespace {

struct InspectOptions {
  ModelOptions model;
  bool is_json = false;
  bool is_verbose = false;
};

OrderedJson json_of(const ModelPart& part) {
  OrderedJson json = {{"name", part.name}, {"kind", part.kind}};
  const LinearPlan& plan = part.plan;
  if (part.kind == "norm") return json;
  json["format"] = plan.format;
  json["dtype"] = name_of(plan.stored_dtype);
  json["out_features"] = plan.out_features;
  json["in_features"] = plan.in_features;
  json["bits_per_weight"] = plan.bits_per_weight;
  json["bytes"] = plan.packed_bytes;
  json["kernel"] = plan.kernel == nullptr ? Json() : Json(plan.kernel->name);
  json["refused"] = plan.refusals;
  return json;
}

OrderedJson json_of(const ModelPlan& plan) {
  const DecoderConfig& config = plan.config;
  OrderedJson parts = OrderedJson::array();
  for (const ModelPart& part : plan.parts) parts.push_back(json_of(part));
  return {{"family", config.family},
          {"format", plan.format},
          {"dtype", name_of(config.dtype)},
          {"num_layers", config.num_layers},
          {"hidden_size", config.hidden_size},
          {"intermediate_size", config.intermediate_size},
          {"num_heads", config.num_heads},
          {"num_kv_heads", config.num_kv_heads},
          {"head_dim", config.head_dim},
          {"vocab_size", config.vocab_size},
          {"max_positions", config.max_positions},
          {"stored_bytes", plan.stored_bytes},
          {"packed_bytes", plan.packed_bytes},
          {"kv_bytes_per_token", plan.kv_bytes_per_token},
          {"parts", std::move(parts)}};
}

void print_text(const ModelPlan& plan, const std::string& name, bool is_verbose) {
  const DecoderConfig& config = plan.config;
  std::printf("%s: family %s, weights %s, format %s\n", name.c_str(), config.family.c_str(),
              name_of(config.dtype), plan.format.c_str());
  std::printf(
      "layers %lld, hidden %lld, MLP %lld, heads %lld query / %lld kv of %lld, "
      "vocabulary %lld, positions %lld\n",
      static_cast<long long>(config.num_layers), static_cast<long long>(config.hidden_size),
      static_cast<long long>(config.intermediate_size), static_cast<long long>(config.num_heads),
      static_cast<long long>(config.num_kv_heads), static_cast<long long>(config.head_dim),
      static_cast<long long>(config.vocab_size), static_cast<long long>(config.max_positions));
  std::printf("stored %s, in memory %s, KV cache %s a token\n\n",
              format_bytes(static_cast<double>(plan.stored_bytes)).c_str(),
              format_bytes(static_cast<double>(plan.packed_bytes)).c_str(),
              format_bytes(static_cast<double>(plan.kv_bytes_per_token)).c_str());
  std::printf("%-52s %-7s %15s %10s  %s\n", "part", "type", "shape", "bytes", "kernel");
  for (const ModelPart& part : plan.parts) {
    if (part.kind == "norm") continue;
    std::printf("%-52s %-7s %15s %10s  %s\n", part.name.c_str(), name_of(part.plan.stored_dtype),
                str(part.plan.out_features, " x ", part.plan.in_features).c_str(),
                format_bytes(static_cast<double>(part.plan.packed_bytes)).c_str(),
                part.plan.kernel == nullptr ? "-" : part.plan.kernel->name);
    if (!is_verbose) continue;
    for (const std::string& refusal : part.plan.refusals) {
      std::printf("    not %s\n", refusal.c_str());
    }
  }
}

}  // namespace

Run add_inspect(CLI::App& parent) {
  CLI::App& app = *parent.add_subcommand(
      "inspect", "Family, shapes, types, bytes and kernels of a checkpoint; reads headers only");
  auto options = std::make_shared<InspectOptions>();
  add_source_options(app, options->model);
  app.add_flag("--json", options->is_json, "One JSON object");
  app.add_flag("--verbose", options->is_verbose, "Also why better-placed kernels were refused");
  app.footer(R"(Examples:
  halley inspect models/demo-21m
  halley inspect --load-format dummy --config llama-3-8b --json)");
  return [options] {
    const ModelFiles files = open_model_files(options->model);
    const ModelPlan plan = plan_model(files.config, *files.source);
    if (options->is_json) {
      std::cout << json_of(plan).dump() << '\n';
    } else {
      print_text(plan, files.source->description(), options->is_verbose);
    }
    return kExitOk;
  };
}

}  // namespace halley::cli
