// The operator's choices for embeddings, reranking and scores.
#pragma once

#include <cstdint>
#include <optional>

#include "halley/engine/pooling.h"
#include "halley/server/openai/score_template.h"

namespace halley {

/// Scores by what the model would answer: p(yes) / (p(yes) + p(no)) behind the prompt.
struct YesNoScoring {
  ScoreTemplate prompt = {};
  int32_t yes_id = 0, no_id = 0;
};

struct PoolingConfig {
  /// kLast or kMean, of embeddings.
  Pooling::Kind kind = Pooling::Kind::kLast;
  bool normalizes = true;  // requests that do not say
  /// How rerank and score compare; absent: the cosine of embeddings.
  std::optional<YesNoScoring> yes_no = {};
};

}  // namespace halley
