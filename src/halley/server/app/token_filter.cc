#include "halley/server/app/token_filter.h"

#include <algorithm>
#include <utility>

#include "halley/sampling/base/token_mask.h"

namespace halley {
namespace {

constexpr size_t kWordBits = 64;

uint64_t bit_of(int32_t id) { return uint64_t{1} << (static_cast<size_t>(id) % kWordBits); }

TokenMask first_mask(const TokenFilter& filter) {
  const size_t num_words = (filter.num_ids + kWordBits - 1) / kWordBits;
  if (filter.allowed.empty()) return TokenMask(num_words, ~uint64_t{0});
  TokenMask mask(num_words, 0);
  for (const int32_t id : filter.allowed) {
    mask.at(static_cast<size_t>(id) / kWordBits) |= bit_of(id);
  }
  return mask;
}

/// A filter with the mask that its requests begin with.
struct CompiledFilter {
  explicit CompiledFilter(TokenFilter given) : filter(std::move(given)), mask(first_mask(filter)) {
    for (const auto& sequence : filter.banned) {
      num_remembered = std::max(num_remembered, sequence.size() - 1);
    }
  }

  TokenFilter filter;
  TokenMask mask;
  size_t num_remembered = 0;  // tokens of the output that a banned sequence may begin with
};

class FilteredOutput : public TokenConstraint {
 public:
  explicit FilteredOutput(std::shared_ptr<const CompiledFilter> compiled)
      : compiled_(std::move(compiled)) {}

  ConstraintWork fill_some(TokenMask& allowed, size_t /*num_steps*/) override {
    allowed = compiled_->mask;
    for (const std::vector<int32_t>& sequence : compiled_->filter.banned) {
      if (!has_beginning_of(sequence)) continue;
      allowed.at(static_cast<size_t>(sequence.back()) / kWordBits) &= ~bit_of(sequence.back());
    }
    return ConstraintWork::kDone;
  }

  ConstraintWork accept_some(int32_t token_id, size_t /*num_steps*/) override {
    if (compiled_->num_remembered == 0) return ConstraintWork::kDone;
    last_.push_back(token_id);
    if (last_.size() > compiled_->num_remembered) last_.erase(last_.begin());
    return ConstraintWork::kDone;
  }

  bool is_complete() const override { return false; }

 private:
  // Whether the output ends with all tokens of the sequence but the last.
  bool has_beginning_of(const std::vector<int32_t>& sequence) const {
    const size_t num = sequence.size() - 1;
    return num <= last_.size() && std::equal(sequence.begin(), sequence.end() - 1,
                                             last_.end() - static_cast<std::ptrdiff_t>(num));
  }

  const std::shared_ptr<const CompiledFilter> compiled_;
  std::vector<int32_t> last_;
};

class FilterConstraint : public CompiledConstraint {
 public:
  explicit FilterConstraint(TokenFilter filter)
      : compiled_(std::make_shared<const CompiledFilter>(std::move(filter))) {}

  std::unique_ptr<TokenConstraint> start() const override {
    return std::make_unique<FilteredOutput>(compiled_);
  }
  size_t num_bytes() const override {
    size_t num_bytes = compiled_->mask.size() * sizeof(uint64_t);
    for (const auto& sequence : compiled_->filter.banned) {
      num_bytes += sequence.size() * sizeof(int32_t);
    }
    return num_bytes;
  }
  bool ends_output() const override { return false; }

 private:
  const std::shared_ptr<const CompiledFilter> compiled_;
};

}  // namespace

std::shared_ptr<const CompiledConstraint> make_token_constraint(TokenFilter filter) {
  return std::make_shared<FilterConstraint>(std::move(filter));
}

}  // namespace halley
