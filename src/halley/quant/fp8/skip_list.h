// The list of layers that a configuration declares to be in full precision.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/quant/base/dense_weight.h"
#include "halley/quant/base/name_pattern.h"

namespace halley {

/// Tools match such lists in different ways: the whole name, its beginning, its end, any part of
/// it. An entry that all of them match is binding; where only some would match, the tensors decide.
class SkipList {
 public:
  SkipList() = default;
  /// The strings of `field`. "re:..." is a regular expression, * and ? make a glob.
  SkipList(const HfConfig& config, std::string_view field);

  struct Verdict {
    ConfigSays says = ConfigSays::kQuantized;
    std::string because;  // for check_agreement()
  };
  /// kDense: an entry is the layer's name, or some whole consecutive components of it ("lm_head",
  /// "model.layers.0", "mlp.gate"), or a pattern that matches the name or a module that the layer
  /// is in. kEither: an entry is another part of the name ("gate" in "gate_proj").
  Verdict verdict(std::string_view layer) const;

 private:
  struct Entry {
    std::string text;
    std::optional<NamePattern> pattern;
  };
  std::string field_;
  std::vector<Entry> entries_;
};

}  // namespace halley
