#include "halley/server/app/reasoned_constraint.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "halley/server/openai/text_marker.h"

namespace halley {
namespace {

using Phase = ReasoningPhase;

size_t longest_close(const ReasoningDialect& dialect) {
  size_t n = 0;
  for (const ReasoningMarkers& markers : dialect.markers) n = std::max(n, markers.close.size());
  return n;
}

void set_token(TokenMask& mask, int32_t id, bool is_allowed) {
  const auto index = static_cast<size_t>(id);
  if (index / 64 >= mask.size()) return;
  const uint64_t bit = uint64_t{1} << (index % 64);
  if (is_allowed) {
    mask[index / 64] |= bit;
  } else {
    mask[index / 64] &= ~bit;
  }
}

class ReasonedConstraint : public TokenConstraint {
 public:
  ReasonedConstraint(const ReasoningTokens& tokens, const ReasoningStart& start,
                     std::optional<int64_t> num_tokens_max, std::unique_ptr<TokenConstraint> inner)
      : tokens_(tokens),
        inner_(std::move(inner)),
        num_tokens_max_(num_tokens_max.value_or(std::numeric_limits<int64_t>::max())),
        parser_(make_reasoning_parser(start)) {
    begin_forcing();
  }

  ConstraintWork fill_some(TokenMask& allowed, size_t num_steps) override {
    if (!forced_.empty()) {
      allowed.assign(tokens_.trie().num_mask_words(), 0);
      set_token(allowed, forced_[num_forced_], true);
      return ConstraintWork::kDone;
    }
    const bool is_inner = !parser_ || parser_->phase() == Phase::kBefore;
    if (is_inner && inner_) return fill_inner(allowed, num_steps);
    allowed.assign(tokens_.trie().num_mask_words(), ~uint64_t{0});
    if (inner_) forbid_ends(allowed);
    return ConstraintWork::kDone;
  }

  ConstraintWork accept_some(int32_t token_id, size_t num_steps) override {
    const bool is_added = std::find(added_.begin(), added_.end(), token_id) != added_.end();
    const bool is_inner = !parser_ || (parser_->phase() == Phase::kBefore && forced_.empty());
    if (is_inner && inner_ && !is_added) {
      const ConstraintWork work = inner_->accept_some(token_id, num_steps);
      if (work == ConstraintWork::kPaused) return work;
      parser_.reset();
      may_have_line_end_ = false;
      return work;
    }
    added_.clear();
    may_have_line_end_ = false;
    if (parser_) read(token_id);
    return ConstraintWork::kDone;
  }

  bool is_complete() const override { return !parser_ && inner_ && inner_->is_complete(); }

 private:
  // The tokens of `inner_`, and those that may come before: an opening marker, or a line end.
  ConstraintWork fill_inner(TokenMask& allowed, size_t num_steps) {
    const ConstraintWork work = inner_->fill_some(allowed, num_steps);
    if (work != ConstraintWork::kDone) return work;
    added_.clear();
    if (parser_) {
      for (const std::vector<int32_t>& opening : tokens_.openings()) add(opening.front(), allowed);
    }
    if (!may_have_line_end_) return work;
    for (const int32_t id : tokens_.line_ends()) add(id, allowed);
    return work;
  }

  void add(int32_t id, TokenMask& allowed) {
    if (has_token(allowed, static_cast<size_t>(id))) return;
    set_token(allowed, id, true);
    added_.push_back(id);
  }

  // The output is not complete without `inner_`, which must begin with a token of its own.
  void forbid_ends(TokenMask& allowed) const {
    for (const int32_t id : tokens_.trie().eos_token_ids()) set_token(allowed, id, false);
    for (const int32_t id : tokens_.with_text_behind()) {
      const std::string text = tail_ + std::string(tokens_.text_of(id));
      for (const ReasoningMarkers& markers : tokens_.dialect().markers) {
        const size_t begin = markers.close.empty() ? text.npos : text.find(markers.close);
        if (begin == text.npos) continue;
        const std::string_view rest = std::string_view(text).substr(begin + markers.close.size());
        if (num_leading_spaces(rest) < rest.size()) set_token(allowed, id, false);
      }
    }
  }

  void read(int32_t token_id) {
    const std::string_view text = tokens_.text_of(token_id);
    const Phase before = parser_->phase();
    ReasoningOutput unused;
    parser_->push(text, unused);
    if (before != Phase::kBefore) ++num_tokens_;
    const size_t num_tail = longest_close(tokens_.dialect());
    tail_ += text;
    if (tail_.size() > num_tail) tail_.erase(0, tail_.size() - num_tail);
    if (!forced_.empty()) {
      if (++num_forced_ < forced_.size()) return;
      forced_.clear();
      num_forced_ = 0;
    }
    if (parser_->phase() == Phase::kAnswer) {
      parser_.reset();
      may_have_line_end_ = true;
      return;
    }
    if (before == Phase::kBefore && parser_->phase() == Phase::kBefore) return go_on_opening(text);
    begin_forcing();
  }

  // An opening marker that has begun goes on: an output of `inner_` would be possible too.
  void go_on_opening(std::string_view text) {
    if (!inner_) return;
    for (const std::vector<int32_t>& opening : tokens_.openings()) {
      if (tokens_.text_of(opening.front()) != text || opening.size() < 2) continue;
      forced_.assign(opening.begin() + 1, opening.end());
      return;
    }
  }

  // Forces the tokens that end reasoning, once its budget is used up or the model has ended it.
  void begin_forcing() {
    const Phase phase = parser_->phase();
    const bool is_used_up = num_tokens_ >= num_tokens_max_ && phase != Phase::kBefore;
    const bool is_ended = phase == Phase::kBetween && inner_;
    if (!is_used_up && !is_ended) return;
    forced_ = tokens_.encode(parser_->ending());
    // A vocabulary that cannot spell the ending: reasoning goes on.
    if (is_used_up && !forced_.empty()) num_tokens_max_ = std::numeric_limits<int64_t>::max();
  }

  const ReasoningTokens& tokens_;
  const std::unique_ptr<TokenConstraint> inner_;  // null: any output
  int64_t num_tokens_max_, num_tokens_ = 0;
  std::unique_ptr<ReasoningParser> parser_;  // null: the answer has begun
  std::vector<int32_t> forced_;              // the next tokens, from num_forced_ on
  size_t num_forced_ = 0;
  std::vector<int32_t> added_;     // tokens of the last mask that are not of `inner_`
  bool may_have_line_end_ = true;  // before the output of `inner_`
  std::string tail_;               // as long as a closing marker
};

class ReasonedCompiledConstraint : public CompiledConstraint {
 public:
  ReasonedCompiledConstraint(std::shared_ptr<const ReasoningTokens> tokens, ReasoningStart start,
                             std::optional<int64_t> num_tokens_max,
                             std::shared_ptr<const CompiledConstraint> inner)
      : tokens_(std::move(tokens)),
        start_(std::move(start)),
        num_tokens_max_(num_tokens_max),
        inner_(std::move(inner)) {}

  std::unique_ptr<TokenConstraint> start() const override {
    return std::make_unique<ReasonedConstraint>(*tokens_, start_, num_tokens_max_,
                                                inner_ ? inner_->start() : nullptr);
  }
  size_t num_bytes() const override { return inner_ ? inner_->num_bytes() : 0; }
  bool ends_output() const override { return inner_ && inner_->ends_output(); }
  const void* group() const override { return inner_ ? inner_->group() : this; }

 private:
  const std::shared_ptr<const ReasoningTokens> tokens_;
  const ReasoningStart start_;
  const std::optional<int64_t> num_tokens_max_;
  const std::shared_ptr<const CompiledConstraint> inner_;
};

}  // namespace

ReasoningTokens::ReasoningTokens(std::shared_ptr<const Tokenizer> tokenizer,
                                 std::shared_ptr<const TokenTrie> trie,
                                 const ReasoningDialect& dialect)
    : tokenizer_(std::move(tokenizer)), trie_(std::move(trie)), dialect_(dialect) {
  for (int32_t id = 0; id < tokenizer_->num_ids(); ++id) {
    if (tokenizer_->is_special(id)) special_.emplace(id, tokenizer_->token_of(id));
  }
  for (int32_t id = 0; id < trie_->num_ids(); ++id) sort_token(id);
  for (const ReasoningMarkers& markers : dialect_.markers) {
    std::vector<int32_t> ids = encode(markers.open);
    if (!ids.empty()) openings_.push_back(std::move(ids));
  }
}

std::string_view ReasoningTokens::text_of(int32_t id) const {
  const auto special = special_.find(id);
  if (special != special_.end()) return special->second;
  return id < trie_->num_ids() ? trie_->bytes_of(id) : std::string_view();
}

void ReasoningTokens::sort_token(int32_t id) {
  const std::string_view text = text_of(id);
  if (text.empty()) return;
  if (text.find_first_not_of("\r\n") == text.npos) line_ends_.push_back(id);
  for (const ReasoningMarkers& markers : dialect_.markers) {
    const size_t end = markers.close.empty() ? text.npos : text.find(markers.close.back());
    if (end == text.npos || end + 1 == text.size()) continue;
    with_text_behind_.push_back(id);
    return;
  }
}

std::shared_ptr<const CompiledConstraint> constraint_behind_reasoning(
    std::shared_ptr<const ReasoningTokens> tokens, const ReasoningStart& start,
    std::optional<int64_t> num_tokens_max, std::shared_ptr<const CompiledConstraint> inner) {
  return std::make_shared<ReasonedCompiledConstraint>(std::move(tokens), start, num_tokens_max,
                                                      std::move(inner));
}

}  // namespace halley
