// The table of the sampling parameters that are one number each. The engine's check, the fields of
// requests and their documentation, the options of the command line and the reading of
// generation_config.json are all made from it: a new parameter is one member of ChoiceParams, one
// row here, and its arithmetic in the samplers.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "halley/sampling/base/token_choice.h"

namespace halley {

/// NaN and the infinities are in no range.
struct ParamRange {
  double min = 0;
  double max = std::numeric_limits<double>::max();
  bool excludes_min = false;
};

struct SamplingField {
  /// The JSON field of requests, with vLLM's name, and the key in generation_config.json. The
  /// option of the command line has dashes for the underscores.
  const char* name;
  std::variant<double ChoiceParams::*, int64_t ChoiceParams::*> member;
  ParamRange range;  // check_sampling_params() accepts these values
  /// The largest value of the JSON field, where that is less than range.max.
  std::optional<double> request_max = {};
  /// The values that generation_config.json may have; nothing: the key is not read. A file may give
  /// a default that `range` rejects: requests that set the parameter still run.
  std::optional<ParamRange> range_in_model = {};
  const char* text;         // the meaning, for the API's documentation
  const char* option_text;  // the same for --help
};

std::span<const SamplingField> sampling_fields();
/// nullptr: no row has the name.
const SamplingField* find_sampling_field(std::string_view name);

/// The neutral value, as JSON: "1".
std::string default_json(const SamplingField& field);

/// Throws InputError "temperature: expected 0 to 2, got 3".
void check_choice_params(const ChoiceParams& params);

/// A value for one parameter. The alternative is that of the field's member.
struct SamplingSetting {
  const SamplingField* field = nullptr;
  std::variant<double, int64_t> value = {};
};
/// Settings that a user or a model's generation_config.json gives; the last one of a field counts.
using SamplingSettings = std::vector<SamplingSetting>;

void apply_settings(const SamplingSettings& settings, ChoiceParams& params);

}  // namespace halley
