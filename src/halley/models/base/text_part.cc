#include "halley/models/base/text_part.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "halley/base/str.h"

namespace halley {
namespace {

/// The checkpoint's name of what a text model alone calls `name`.
std::string name_in(const TextNames& names, std::string_view name) {
  constexpr std::string_view kBody = "model.", kHead = "lm_head";
  if (name.starts_with(kBody)) return str(names.body, name.substr(kBody.size()));
  if (name.starts_with(kHead)) return str(names.head, name.substr(kHead.size()));
  return std::string(name);
}

/// The checkpoint's tensors under the names of a text model alone, for the mapping's look-ups.
class TextTensors : public TensorSource {
 public:
  TextTensors(const TensorSource& source, const TextNames& names)
      : source_(source), names_(names) {}

  std::string description() const override { return source_.description(); }
  const std::vector<TensorInfo>& tensors() const override { return source_.tensors(); }
  const TensorInfo* find(std::string_view name) const override {
    return source_.find(name_in(names_, name));
  }
  TensorView view(const TensorInfo& info) const override { return source_.view(info); }

 private:
  const TensorSource& source_;
  const TextNames names_;
};

bool has_prefix(const TensorSource& source, const std::string& prefix) {
  const std::vector<TensorInfo>& tensors = source.tensors();
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const TensorInfo& info) { return info.name.starts_with(prefix); });
}

TextNames layout_of(const FamilyInput& input, const TextPart& part) {
  if (input.tensors != nullptr) {
    for (const TextNames& names : part.layouts) {
      if (has_prefix(*input.tensors, str(names.body, "layers."))) return names;
    }
  }
  return part.layouts.front();
}

void rename(const TextNames& names, NormSpec& norm) {
  norm.weight_name = name_in(names, norm.weight_name);
  norm.bias_name = name_in(names, norm.bias_name);
}
void rename(const TextNames& names, std::optional<NormSpec>& norm) {
  if (norm) rename(names, *norm);
}
void rename(const TextNames& names, LinearSpec& linear) {
  for (LinearSpec::Part& part : linear.parts) part.name = name_in(names, part.name);
}
void rename(const TextNames& names, std::optional<LinearSpec>& linear) {
  if (linear) rename(names, *linear);
}

void rename_all(const TextNames& names, DecoderConfig& decoder) {
  for (std::string* name :
       {&decoder.embedding_name, &decoder.position_embedding_name, &decoder.tied_output_name}) {
    *name = name_in(names, *name);
  }
  rename(names, decoder.final_norm);
  rename(names, decoder.lm_head);
  for (LayerSpec& layer : decoder.layers) {
    for (auto* norm : {&layer.input_norm, &layer.attention_out_norm, &layer.mlp_norm,
                       &layer.mlp_out_norm, &layer.q_norm, &layer.k_norm}) {
      rename(names, *norm);
    }
    for (LinearSpec* linear : {&layer.qkv, &layer.o}) rename(names, *linear);
    rename(names, layer.mlp.router);
    for (LinearSpec& linear : layer.mlp.gate_up) rename(names, linear);
    for (LinearSpec& linear : layer.mlp.down) rename(names, linear);
  }
}

std::optional<bool> declared_tie(const HfConfig& config) {
  constexpr const char* kField = "tie_word_embeddings";
  if (!config.has(kField)) return std::nullopt;
  return config.boolean_or(kField, false);
}

/// Corrects what the mapping took from the text model's fields alone.
void decide_tie(const FamilyInput& input, const HfConfig& text, const TextNames& names,
                DecoderConfig& decoder) {
  const std::optional<bool> outer = declared_tie(input.config), inner = declared_tie(text);
  if (outer && (!inner || *inner == *outer)) return set_tied(*outer, decoder);
  if (inner && !outer) return;
  if (input.tensors != nullptr) set_tied(!has_prefix(*input.tensors, names.head), decoder);
}

}  // namespace

TextPart vision_tower_part() {
  return {.layouts = {{.body = "language_model.model.", .head = "language_model.lm_head"},
                      {.body = "model.language_model.", .head = "lm_head"}},
          .other_prefixes = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                             "model.multi_modal_projector."}};
}

DecoderConfig read_text_part(const FamilyInput& input, const TextPart& part,
                             DecoderConfig (*read_text)(const FamilyInput& input)) {
  const std::optional<HfConfig> nested = input.config.object("text_config");
  const HfConfig& text = nested ? *nested : input.config;
  const TextNames names = layout_of(input, part);
  std::optional<TextTensors> tensors;
  if (input.tensors != nullptr) tensors.emplace(*input.tensors, names);
  DecoderConfig decoder = read_text({.config = text,
                                     .tensors = tensors ? &*tensors : nullptr,
                                     .max_length = input.max_length,
                                     .outer = &input.config});
  decide_tie(input, text, names, decoder);
  rename_all(names, decoder);
  decoder.ignored_prefixes = part.other_prefixes;
  return decoder;
}

}  // namespace halley
