#include "halley/sampling/base/sampling_fields.h"

#include <array>
#include <type_traits>

#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

constexpr double kInt31Max = std::numeric_limits<int32_t>::max();

// In the order of the documentation and of --help.
constexpr auto kFields = std::to_array<SamplingField>({
    {.name = "temperature",
     .member = &ChoiceParams::temperature,
     .range = {0, 2},
     .range_in_model = ParamRange{0, 1e6},
     .text = "0: greedy. Default: the model's generation_config.json, else 1.",
     .option_text = "0: greedy; default: the model's, else 1"},
    {.name = "top_k",
     .member = &ChoiceParams::top_k,
     .range = {-1},
     .request_max = kInt31Max,
     .range_in_model = ParamRange{-1, kInt31Max},
     .text = "Only the k most likely tokens; 0 or -1: all. Default: the model's, else 0.",
     .option_text = "Only the k most likely; 0: all; default: the model's"},
    {.name = "top_p",
     .member = &ChoiceParams::top_p,
     .range = {0, 1, true},
     .range_in_model = ParamRange{0, 1},
     .text = "Only the most likely tokens with this sum. Default: the model's, else 1.",
     .option_text = "Only the most likely with this sum; default: the model's"},
    {.name = "min_p",
     .member = &ChoiceParams::min_p,
     .range = {0, 1},
     .range_in_model = ParamRange{0, 1},
     .text =
         "Only tokens at least this share of the most likely one. Default: the model's, else 0.",
     .option_text = "Only those at least this share of the most likely"},
    {.name = "repetition_penalty",
     .member = &ChoiceParams::repetition_penalty,
     .range = {.min = 0, .excludes_min = true},
     .request_max = 100,
     .range_in_model = ParamRange{1e-6, 1e6},
     .text = "Divides logits of tokens in prompt and output. Default: the model's, else 1.",
     .option_text = "Over prompt and output; 1: none"},
    {.name = "presence_penalty",
     .member = &ChoiceParams::presence_penalty,
     .range = {-2, 2},
     .text = "Against tokens that the output has.",
     .option_text = "Over the output, -2 to 2"},
    {.name = "frequency_penalty",
     .member = &ChoiceParams::frequency_penalty,
     .range = {-2, 2},
     .text = "The same for each time that it has them.",
     .option_text = "Over the output, -2 to 2"},
    {.name = "dry_multiplier",
     .member = &ChoiceParams::dry_multiplier,
     .range = {0, 100},
     .text = "DRY, against repetitions of texts; 0: none. A token that goes on with a repetition "
             "of n tokens, n at least dry_allowed_length, has its logit lowered by dry_multiplier "
             "* dry_base ^ (n - dry_allowed_length). Not on a GPU.",
     .option_text = "DRY, against repetitions of texts; 0: none; not on a GPU"},
    {.name = "dry_base",
     .member = &ChoiceParams::dry_base,
     .range = {1, 100},
     .text = "How fast DRY's penalty grows with each token of the repetition.",
     .option_text = "DRY's penalty grows by this with each token"},
    {.name = "dry_allowed_length",
     .member = &ChoiceParams::dry_allowed_length,
     .range = {0},
     .request_max = kInt31Max,
     .text = "The shortest repetition that DRY penalizes.",
     .option_text = "The shortest repetition that DRY penalizes"},
    {.name = "dry_penalty_last_n",
     .member = &ChoiceParams::dry_penalty_last_n,
     .range = {-1},
     .request_max = kInt31Max,
     .text = "The last tokens of prompt and output in which DRY looks for repetitions; -1: all; 0: "
             "no DRY.",
     .option_text = "The last tokens that DRY looks at; -1: all"},
    {.name = "xtc_probability",
     .member = &ChoiceParams::xtc_probability,
     .range = {0, 1},
     .text = "XTC, which leaves out the most likely tokens: how often it does, by the seed; 0: "
             "never. Where two or more tokens of those that top_k, top_p and min_p leave reach "
             "xtc_threshold, only the least likely of these stays. Not on a GPU.",
     .option_text = "How often XTC leaves out the most likely tokens; not on a GPU"},
    {.name = "xtc_threshold",
     .member = &ChoiceParams::xtc_threshold,
     .range = {0, 1},
     .text = "The probability before temperature that counts for XTC; above 0.5: no XTC.",
     .option_text = "The probability that counts for XTC"},
});

bool contains(const ParamRange& range, double value) {
  return value <= range.max && (range.excludes_min ? value > range.min : value >= range.min);
}

std::string in_words(const ParamRange& range) {
  if (range.max == std::numeric_limits<double>::max()) {
    return str(range.excludes_min ? "a finite number above " : "at least ", range.min);
  }
  if (range.excludes_min) return str("above ", range.min, " and at most ", range.max);
  return str(range.min, " to ", range.max);
}

}  // namespace

std::span<const SamplingField> sampling_fields() { return kFields; }

const SamplingField* find_sampling_field(std::string_view name) {
  for (const SamplingField& field : kFields) {
    if (name == field.name) return &field;
  }
  return nullptr;
}

std::string default_json(const SamplingField& field) {
  return std::visit([](auto member) { return str(ChoiceParams{}.*member); }, field.member);
}

void check_choice_params(const ChoiceParams& params) {
  for (const SamplingField& field : kFields) {
    std::visit(
        [&](auto member) {
          const auto value = params.*member;
          if (contains(field.range, static_cast<double>(value))) return;
          throw InputError(str(field.name, ": expected ", in_words(field.range), ", got ", value));
        },
        field.member);
  }
}

void apply_settings(const SamplingSettings& settings, ChoiceParams& params) {
  for (const SamplingSetting& setting : settings) {
    std::visit(
        [&](auto member) {
          auto& target = params.*member;
          target = std::get<std::remove_reference_t<decltype(target)>>(setting.value);
        },
        setting.field->member);
  }
}

}  // namespace halley
