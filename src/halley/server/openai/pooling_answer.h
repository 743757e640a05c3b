// Answers of requests that generate nothing, as JSON texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "halley/server/openai/answer.h"
#include "halley/server/openai/api_request.h"

namespace halley {

/// Keeps the first numbers of a vector and divides it by its length, as the request says. A vector
/// of zeros stays one.
std::vector<float> finish_embedding(std::vector<float> vector, const ApiPooling& pooling);

/// The bytes of the vector as little-endian f32, in base64 (RFC 4648).
std::string base64_of(std::span<const float> vector);

/// The answer of /v1/embeddings, in pieces: the text of a vector is five times as long.
class EmbeddingWriter {
 public:
  struct Parts {
    AnswerHead head;
    int64_t num_prompt_tokens = 0;
    bool is_base64 = false;
    std::vector<std::vector<float>> embeddings = {};  // in the order of the inputs
  };
  explicit EmbeddingWriter(Parts parts) : parts_(std::move(parts)) {}

  /// Appends the next bytes, `num_bytes` or up to one embedding more, to `text`. Returns false at
  /// the end.
  bool write(size_t num_bytes, std::string& text);

 private:
  void write_next(std::string& text);

  Parts parts_;
  size_t num_written_ = 0;
};

/// The cosine of the angle between two vectors of the same size; 0 where one is zero.
double cosine_of(std::span<const float> a, std::span<const float> b);

/// The answer of /v1/rerank: the best first, of equal ones the first document first.
std::string rerank_answer(std::span<const double> scores, const ApiRequest& request,
                          const AnswerHead& head, int64_t num_prompt_tokens);
/// The answer of /v1/score: in the order of the texts.
std::string score_answer(std::span<const double> scores, const AnswerHead& head,
                         int64_t num_prompt_tokens);

}  // namespace halley
