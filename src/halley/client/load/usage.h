// The member `usage` of an OpenAI-compatible answer: the tokens that the server counted.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "halley/json/json.h"

namespace halley {

/// Output tokens by the name of the precision in which they were made.
using PrecisionTokens = std::map<std::string, int64_t>;

struct Usage {
  std::optional<int64_t> prompt_tokens = {}, completion_tokens = {};
  PrecisionTokens precision_tokens = {};
};

/// Reads
///   {"prompt_tokens": 7, "completion_tokens": 20,
///    "completion_tokens_details": {"precision": {"full": 15, "low": 5}}}
/// where a server that has one model in several precisions tells how many tokens it made in each.
/// Members that are absent or no counts from 0 to 2^32 stay absent. At most 8 precisions are read;
/// their names are at most 32 letters, digits and "._-".
Usage read_usage(const Json& usage);

}  // namespace halley
