// The "post_processor" of tokenizer.json: the ids that are put around a text (a BOS, mostly).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/json/json.h"

namespace halley {

/// Adds special tokens around every text. Immutable; any thread.
class PostProcessor {
 public:
  /// No ids at all.
  PostProcessor() = default;

  /// From the value of "post_processor"; `num_ids` bounds the ids. Throws InputError, or
  /// UnsupportedError for a kind that we do not do, by name.
  static PostProcessor parse(const Json& value, int32_t num_ids, const std::string& where);

  std::vector<int32_t> apply(const std::vector<int32_t>& ids, bool add_special_tokens) const;

 private:
  // A part of the result: given ids, or those of the text.
  struct Part {
    bool is_text;
    std::vector<int32_t> ids;
  };
  friend class PostProcessorBuilder;

  std::vector<Part> with_special_{{true, {}}};
  std::vector<Part> without_special_{{true, {}}};
};

}  // namespace halley
