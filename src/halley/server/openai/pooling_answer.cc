#include "halley/server/openai/pooling_answer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/str.h"
#include "halley/json/json.h"

namespace halley {
namespace {

// "-1.17549435e-38" has 15 characters.
constexpr size_t kFloatTextBytesMax = 16;

OrderedJson usage_of(int64_t num_prompt_tokens) {
  return {{"prompt_tokens", num_prompt_tokens}, {"total_tokens", num_prompt_tokens}};
}

// The shortest text that reads as the same float. Vectors are long: JSON values for their numbers
// would take five times as much memory.
void append_vector(std::span<const float> vector, std::string& text) {
  std::array<char, kFloatTextBytesMax> digits;
  text += '[';
  for (size_t i = 0; i < vector.size(); ++i) {
    if (i > 0) text += ',';
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), vector[i]);
    HALLEY_CHECK(end.ec == std::errc(), i);
    text.append(digits.data(), end.ptr);
  }
  text += ']';
}

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

}  // namespace

std::vector<float> finish_embedding(std::vector<float> vector, const ApiPooling& pooling) {
  if (pooling.dimensions) {
    HALLEY_CHECK(*pooling.dimensions <= static_cast<int64_t>(vector.size()), vector.size());
    vector.resize(static_cast<size_t>(*pooling.dimensions));
  }
  const double length = std::sqrt(dot(vector, vector));
  if (!pooling.normalizes.value_or(true) || length == 0) return vector;
  for (float& value : vector) value = static_cast<float>(double{value} / length);
  return vector;
}

std::string base64_of(std::span<const float> vector) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<uint8_t> bytes;
  bytes.reserve(vector.size() * 4 + 2);
  for (const float value : vector) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<uint8_t>(bits >> shift));
  }
  const size_t num_missing = (3 - bytes.size() % 3) % 3;
  bytes.resize(bytes.size() + num_missing, 0);
  std::string text;
  text.reserve(bytes.size() / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const uint32_t group = uint32_t{bytes[i]} << 16 | uint32_t{bytes[i + 1]} << 8 | bytes[i + 2];
    for (int shift = 18; shift >= 0; shift -= 6) text += kDigits[group >> shift & 63];
  }
  std::fill(text.end() - static_cast<ptrdiff_t>(num_missing), text.end(), '=');
  return text;
}

void EmbeddingWriter::write_next(std::string& text) {
  const std::vector<float> vector = std::move(parts_.embeddings[num_written_]);
  text += str(num_written_ > 0 ? "," : "", R"({"object":"embedding","index":)", num_written_,
              R"(,"embedding":)");
  if (parts_.is_base64) {
    text += str('"', base64_of(vector), '"');
  } else {
    append_vector(vector, text);
  }
  text += '}';
  ++num_written_;
}

bool EmbeddingWriter::write(size_t num_bytes, std::string& text) {
  const size_t end = text.size() + num_bytes;
  if (num_written_ == 0) text += R"({"object":"list","data":[)";
  while (num_written_ < parts_.embeddings.size() && text.size() < end) write_next(text);
  if (num_written_ < parts_.embeddings.size()) return true;
  text += str(R"(],"model":)", OrderedJson(parts_.head.model).dump(), R"(,"usage":)",
              usage_of(parts_.num_prompt_tokens).dump(), R"(,"id":)",
              OrderedJson(parts_.head.id).dump(), R"(,"created":)", parts_.head.created_s, "}");
  return false;
}

double cosine_of(std::span<const float> a, std::span<const float> b) {
  HALLEY_CHECK(a.size() == b.size(), a.size(), b.size());
  const double lengths = std::sqrt(dot(a, a)) * std::sqrt(dot(b, b));
  return lengths == 0 ? 0 : std::clamp(dot(a, b) / lengths, -1.0, 1.0);
}

std::string rerank_answer(std::span<const double> scores, const ApiRequest& request,
                          const AnswerHead& head, int64_t num_prompt_tokens) {
  const ApiPooling& pooling = request.pooling;
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (pooling.top_n && *pooling.top_n < static_cast<int64_t>(order.size())) {
    order.resize(static_cast<size_t>(*pooling.top_n));
  }
  OrderedJson results = OrderedJson::array();
  for (const size_t index : order) {
    OrderedJson result = {{"index", index}};
    if (pooling.returns_documents) result["document"] = {{"text", pooling.documents[index]}};
    result["relevance_score"] = scores[index];
    results.push_back(std::move(result));
  }
  return OrderedJson({{"id", head.id},
                      {"model", head.model},
                      {"usage", usage_of(num_prompt_tokens)},
                      {"results", std::move(results)}})
      .dump();
}

std::string score_answer(std::span<const double> scores, const AnswerHead& head,
                         int64_t num_prompt_tokens) {
  OrderedJson data = OrderedJson::array();
  for (size_t i = 0; i < scores.size(); ++i) {
    data.push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
  }
  return OrderedJson({{"id", head.id},
                      {"object", "list"},
                      {"created", head.created_s},
                      {"model", head.model},
                      {"data", std::move(data)},
                      {"usage", usage_of(num_prompt_tokens)}})
      .dump();
}

}  // namespace halley
