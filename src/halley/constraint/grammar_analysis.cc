#include "halley/constraint/grammar_analysis.h"

#include <algorithm>
#include <map>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"

namespace halley {
namespace {

bool has_parts(ExprKind kind) { return kind != ExprKind::kBytes && kind != ExprKind::kText; }

}  // namespace

void GrammarAnalysis::run() {
  find_users();
  find_nullable();
  reject_left_recursion();
  find_frames();
  fill_frames_from_part();
  if (grammar_.frames_[static_cast<size_t>(grammar_.root_)] == kNoEnd) {
    throw InputError(str(where_,
                         ": expected a schema or pattern that some finite value fulfils, got one "
                         "that none does. Look for false schemas, empty ranges and classes, and "
                         "required members that contain themselves."));
  }
  find_byte_classes();
}

void GrammarAnalysis::find_users() {
  first_user_.assign(grammar_.exprs_.size() + 1, 0);
  for (const ExprId part : grammar_.parts_) ++first_user_[static_cast<size_t>(part) + 1];
  for (size_t i = 1; i < first_user_.size(); ++i) first_user_[i] += first_user_[i - 1];
  users_.resize(grammar_.parts_.size());
  std::vector<size_t> next = first_user_;
  for (size_t id = 0; id < grammar_.exprs_.size(); ++id) {
    const Expr& expr = grammar_.exprs_[id];
    if (!has_parts(expr.kind)) continue;
    for (int32_t i = 0; i < expr.count; ++i) {
      users_[next[static_cast<size_t>(grammar_.part(expr, i))]++] = static_cast<ExprId>(id);
    }
  }
}

void GrammarAnalysis::find_nullable() {
  std::vector<ExprId> found;
  // Counts a sequence's parts that are not known to be nullable yet.
  std::vector<int32_t> num_left(grammar_.exprs_.size(), 0);
  for (size_t id = 0; id < grammar_.exprs_.size(); ++id) {
    Expr& expr = grammar_.exprs_[id];
    num_left[id] = expr.kind == ExprKind::kSequence ? expr.count : 1;
    expr.is_nullable = num_left[id] == 0 || (expr.kind == ExprKind::kRepeat && expr.min == 0);
    if (expr.is_nullable) found.push_back(static_cast<ExprId>(id));
  }
  while (!found.empty()) {
    const auto part = static_cast<size_t>(found.back());
    found.pop_back();
    for (size_t i = first_user_[part]; i < first_user_[part + 1]; ++i) {
      const auto user = static_cast<size_t>(users_[i]);
      if (--num_left[user] > 0 || grammar_.exprs_[user].is_nullable) continue;
      grammar_.exprs_[user].is_nullable = true;
      found.push_back(users_[i]);
    }
  }
  for (const Expr& expr : grammar_.exprs_) {
    if (expr.kind != ExprKind::kRepeat) continue;
    HALLEY_CHECK(!grammar_.expr(grammar_.part(expr, 0)).is_nullable);
  }
}

int32_t GrammarAnalysis::frames_of_part(const Expr& expr, int32_t index) const {
  const int32_t frames = grammar_.frames_[static_cast<size_t>(grammar_.part(expr, index))];
  const bool is_last = expr.kind == ExprKind::kSequence ? index + 1 == expr.count
                       : expr.kind == ExprKind::kRepeat ? expr.max == 1
                                                        : true;
  return frames == kNoEnd || is_last ? frames : frames + 1;
}

int32_t GrammarAnalysis::frames_of(ExprId id) const {
  const Expr& expr = grammar_.expr(id);
  int32_t frames = expr.kind == ExprKind::kChoice ? kNoEnd : 0;
  if (!has_parts(expr.kind) || (expr.kind == ExprKind::kRepeat && expr.min == 0)) return 0;
  for (int32_t i = 0; i < expr.count; ++i) {
    const int32_t part = frames_of_part(expr, i);
    frames = expr.kind == ExprKind::kChoice ? std::min(frames, part) : std::max(frames, part);
  }
  return frames;
}

// Knuth's generalisation of Dijkstra's algorithm: expressions are settled in the order of the
// frames that they need, so that each is visited once for each of its parts.
void GrammarAnalysis::find_frames() {
  const size_t num_exprs = grammar_.exprs_.size();
  grammar_.frames_.assign(num_exprs, kNoEnd);
  std::vector<int32_t> num_left(num_exprs, 0);
  std::vector<std::vector<ExprId>> settled_at(1);
  for (size_t id = 0; id < num_exprs; ++id) {
    const Expr& expr = grammar_.exprs_[id];
    const bool is_free = !has_parts(expr.kind) ||
                         (expr.kind == ExprKind::kSequence && expr.count == 0) ||
                         (expr.kind == ExprKind::kRepeat && expr.min == 0);
    num_left[id] = expr.kind == ExprKind::kSequence ? expr.count : 1;
    if (is_free) settled_at[0].push_back(static_cast<ExprId>(id));
  }
  for (size_t frames = 0; frames < settled_at.size(); ++frames) {
    while (!settled_at[frames].empty()) {
      const auto id = static_cast<size_t>(settled_at[frames].back());
      settled_at[frames].pop_back();
      if (grammar_.frames_[id] != kNoEnd) continue;
      grammar_.frames_[id] = static_cast<int32_t>(frames);
      for (size_t i = first_user_[id]; i < first_user_[id + 1]; ++i) {
        const auto user = static_cast<size_t>(users_[i]);
        if (--num_left[user] > 0 || grammar_.frames_[user] != kNoEnd) continue;
        const auto needed = static_cast<size_t>(frames_of(users_[i]));
        if (needed >= settled_at.size()) settled_at.resize(needed + 1);
        settled_at[needed].push_back(users_[i]);
      }
    }
  }
}

void GrammarAnalysis::fill_frames_from_part() {
  grammar_.frames_from_part_.assign(grammar_.parts_.size(), 0);
  for (const Expr& expr : grammar_.exprs_) {
    if (expr.kind != ExprKind::kSequence) continue;
    int32_t frames = 0;
    for (int32_t i = expr.count; i-- > 0;) {
      frames = std::max(frames, frames_of_part(expr, i));
      grammar_.frames_from_part_[static_cast<size_t>(expr.first + i)] = frames;
    }
  }
}

// The number of first parts that can be at the beginning of the expression's text.
int32_t GrammarAnalysis::num_first_parts(const Expr& expr) const {
  if (!has_parts(expr.kind)) return 0;
  if (expr.kind != ExprKind::kSequence) return expr.count;
  int32_t count = 0;
  while (count < expr.count && grammar_.expr(grammar_.part(expr, count)).is_nullable) ++count;
  return std::min(count + 1, expr.count);
}

// Depth-first search without recursion: a rule's chain may be as long as the grammar.
void GrammarAnalysis::reject_left_recursion() const {
  enum class Visit : uint8_t { kNone, kOpen, kDone };
  std::vector<Visit> visits(grammar_.exprs_.size(), Visit::kNone);
  std::vector<std::pair<ExprId, int32_t>> path;  // expression, next part to visit
  for (size_t start = 0; start < visits.size(); ++start) {
    if (visits[start] != Visit::kNone) continue;
    path.emplace_back(static_cast<ExprId>(start), 0);
    visits[start] = Visit::kOpen;
    while (!path.empty()) {
      auto& [id, index] = path.back();
      const Expr& expr = grammar_.expr(id);
      if (index >= num_first_parts(expr)) {
        visits[static_cast<size_t>(id)] = Visit::kDone;
        path.pop_back();
        continue;
      }
      const ExprId part = grammar_.part(expr, index++);
      Visit& visit = visits[static_cast<size_t>(part)];
      if (visit == Visit::kOpen) {
        throw InputError(str(where_,
                             ": expected references that lead to a value, got one that "
                             "leads back to itself. Check $ref, anyOf and oneOf."));
      }
      if (visit == Visit::kDone) continue;
      visit = Visit::kOpen;
      path.emplace_back(part, 0);
    }
  }
}

void GrammarAnalysis::find_byte_classes() {
  std::array<uint8_t, 256>& classes = grammar_.class_of_;
  classes.fill(0);
  int32_t num_classes = 1;
  const auto split = [&](const ByteSet& set) {
    std::map<int32_t, int32_t> class_inside;  // of the bytes of a class that are in the set
    std::array<int32_t, 256> num_inside{};
    std::array<int32_t, 256> num_all{};
    for (size_t byte = 0; byte < 256; ++byte) {
      ++num_all[classes[byte]];
      if (set[byte]) ++num_inside[classes[byte]];
    }
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint8_t old = classes[byte];
      if (!set[byte] || num_inside[old] == num_all[old]) continue;
      const auto [found, is_new] = class_inside.try_emplace(old, num_classes);
      if (is_new) ++num_classes;
      classes[byte] = static_cast<uint8_t>(found->second);
    }
  };
  for (const ByteSet& set : grammar_.byte_sets_) split(set);
  ByteSet text_bytes;
  for (const char byte : grammar_.text_) text_bytes.set(static_cast<uint8_t>(byte));
  for (size_t byte = 0; byte < 256; ++byte) {
    if (text_bytes[byte]) split(ByteSet().set(byte));
  }
  grammar_.num_byte_classes_ = num_classes;
}

}  // namespace halley
