// Pools the rows of one request's prompt, which arrive in chunks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halley/engine/pooling.h"

namespace halley {

/// Not thread-safe. The result does not depend on how the prompt was cut into chunks.
class Pooler {
 public:
  Pooler(Pooling pooling, int64_t num_prompt_tokens);

  const Pooling& pooling() const { return pooling_; }

  /// Rows [begin, end) of a sequence's part of a step.
  struct Rows {
    int64_t begin = 0, end = 0;
  };
  /// The rows of tokens [num_past, num_past + num_rows) that add() will get, in order. To be called
  /// once for each step that is launched. Rows that were requested before a preemption are not
  /// requested again: they still arrive.
  Rows ask(int64_t num_past, int64_t num_rows);

  /// Takes the next requested row: hidden states [H], or logits [V] for kTokenLogits. Returns false
  /// if one that counts is NaN or infinite.
  [[nodiscard]] bool add(std::span<const float> row);

  /// Whether the last row of the prompt has been added.
  bool is_complete() const { return num_added_ == num_wanted_; }
  /// [H], or one for each of token_ids; to be taken once, when it is complete.
  std::vector<float> take();

 private:
  Pooling pooling_;
  int64_t num_prompt_tokens_;
  int64_t num_wanted_;
  int64_t num_asked_ = 0;  // tokens whose rows were requested, or are not wanted
  int64_t num_added_ = 0;
  std::vector<double> sums_;
};

}  // namespace halley
