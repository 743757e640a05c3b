#include "halley/sampling/base/dry_penalty.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "halley/base/check.h"

namespace halley {
namespace {

// The penalty stops to grow where its power of the base leaves f32, as in llama.cpp.
constexpr double kLogPowerMax = 88.7228391;

}  // namespace

void DryBreakers::add(int32_t head, std::vector<int32_t> tail) {
  std::vector<std::vector<int32_t>>& tails = tails_[head];
  if (std::find(tails.begin(), tails.end(), tail) == tails.end()) tails.push_back(std::move(tail));
}

std::span<const std::vector<int32_t>> DryBreakers::tails_of(int32_t head) const {
  const auto it = tails_.find(head);
  if (it == tails_.end()) return {};
  return it->second;
}

bool DryBreakers::is_breaker(int32_t token_id) const {
  const auto tails = tails_of(token_id);
  return std::any_of(tails.begin(), tails.end(), [](const auto& tail) { return tail.empty(); });
}

DryPenalty::DryPenalty(const ChoiceParams& params, std::shared_ptr<const DryBreakers> breakers,
                       std::span<const int32_t> prompt_ids)
    : multiplier_(params.dry_multiplier),
      base_(params.dry_base),
      allowed_length_(params.dry_allowed_length),
      last_n_(params.dry_penalty_last_n),
      breakers_(std::move(breakers)),
      tokens_(prompt_ids.begin(), prompt_ids.end()) {
  HALLEY_CHECK(has_dry(params), params.dry_multiplier);
}

int64_t DryPenalty::window_size() const {
  const auto num_tokens = static_cast<int64_t>(tokens_.size());
  return last_n_ < 0 ? num_tokens : std::min(num_tokens, last_n_);
}

// Whether the tokens behind token_back(head) are the tail.
bool DryPenalty::ends_with_tail(const std::vector<int32_t>& tail, int64_t head) const {
  const auto length = static_cast<int64_t>(tail.size());
  if (length > head) return false;
  for (int64_t i = 0; i < length; ++i) {
    if (tail[static_cast<size_t>(i)] != token_back(head - 1 - i)) return false;
  }
  return true;
}

// The number of tokens behind the last breaker in the window; `num_tokens`: it has none.
int64_t DryPenalty::repeat_max(int64_t num_tokens) const {
  if (breakers_ == nullptr) return num_tokens;
  for (int64_t head = 0; head < num_tokens; ++head) {
    int64_t longest = -1;
    for (const std::vector<int32_t>& tail : breakers_->tails_of(token_back(head))) {
      if (ends_with_tail(tail, head)) {
        longest = std::max(longest, static_cast<int64_t>(tail.size()));
      }
    }
    if (longest >= 0) return head - longest;
  }
  return num_tokens;
}

double DryPenalty::penalty_of(int64_t repeat) const {
  double exponent = static_cast<double>(repeat - allowed_length_);
  if (base_ > 1) exponent = std::min(exponent, kLogPowerMax / std::log(base_));
  return multiplier_ * std::pow(base_, exponent);
}

// repeats[k] is the length of the longest common suffix of the window and of the window without its
// last k tokens: the Z array of the reversed window, which takes linear time. [begin, end) is the
// match that reaches furthest; inside it what was found at the window's end tells the length.
void DryPenalty::apply(std::vector<double>& scores, std::vector<int64_t>& repeats) const {
  const int64_t num_tokens = window_size();
  if (num_tokens <= allowed_length_) return;
  const int64_t repeat_limit = repeat_max(num_tokens);
  if (repeat_limit < allowed_length_) return;
  repeats.assign(static_cast<size_t>(num_tokens), 0);
  std::unordered_map<int32_t, int64_t> longest;  // by the token that goes on
  int64_t begin = 0, end = 0;
  for (int64_t k = 1; k < num_tokens; ++k) {
    int64_t length = k < end ? std::min(end - k, repeats[static_cast<size_t>(k - begin)]) : 0;
    while (k + length < num_tokens && token_back(length) == token_back(k + length)) ++length;
    repeats[static_cast<size_t>(k)] = length;
    if (k + length > end) begin = k, end = k + length;
    length = std::min(length, repeat_limit);
    if (length < allowed_length_) continue;
    int64_t& known = longest.try_emplace(token_back(k - 1), length).first->second;
    known = std::max(known, length);
  }
  for (const auto& [id, repeat] : longest) {
    if (breakers_ != nullptr && breakers_->is_breaker(id)) continue;
    scores[static_cast<size_t>(id)] -= penalty_of(repeat);
  }
}

}  // namespace halley
