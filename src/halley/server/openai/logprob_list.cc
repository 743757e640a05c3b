#include "halley/server/openai/logprob_list.h"

#include <cmath>
#include <limits>

#include "halley/base/check.h"

namespace halley {
namespace {

constexpr TokenLogprob kNoAlternative = {-1, 0};

}  // namespace

void LogprobList::add(int32_t token_id, std::optional<float> logprob,
                      std::span<const TokenLogprob> top) {
  HALLEY_CHECK(top.size() < stride_, top.size(), stride_);
  values_.push_back({token_id, logprob.value_or(std::numeric_limits<float>::quiet_NaN())});
  values_.insert(values_.end(), top.begin(), top.end());
  values_.insert(values_.end(), stride_ - 1 - top.size(), kNoAlternative);
}

TokenDetail LogprobList::at(size_t index) const {
  HALLEY_CHECK(index < size(), index, size());
  const auto begin = values_.begin() + static_cast<std::ptrdiff_t>(index * stride_);
  TokenDetail detail{.token_id = begin->token_id, .logprob = {}, .top_logprobs = {}};
  if (!std::isnan(begin->logprob)) detail.logprob = *begin;
  for (size_t i = 1; i < stride_; ++i) {
    const TokenLogprob& entry = begin[static_cast<std::ptrdiff_t>(i)];
    if (entry.token_id == kNoAlternative.token_id) break;
    detail.top_logprobs.push_back(entry);
  }
  return detail;
}

}  // namespace halley
