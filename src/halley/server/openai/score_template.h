// The prompt by which a generating model is asked whether a document is relevant to a query.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace halley {

/// A text with "{query}" and "{document}", each once, and "{instruction}" at most once.
class ScoreTemplate {
 public:
  /// That of the Qwen3-Reranker models (the model card of Qwen/Qwen3-Reranker-0.6B).
  ScoreTemplate();
  /// Throws InputError where a mark is missing or stands twice. `where` names the text.
  static ScoreTemplate parse(std::string_view text, const std::string& where);

  /// Marks inside the three texts stay as they are. An empty instruction stands for "Given a web
  /// search query, retrieve relevant passages that answer the query".
  std::string render(std::string_view instruction, std::string_view query,
                     std::string_view document) const;

 private:
  enum class Slot : uint8_t { kNone, kInstruction, kQuery, kDocument };
  struct Part {
    std::string text;
    Slot slot = Slot::kNone;  // what follows the text
  };
  explicit ScoreTemplate(std::vector<Part> parts) : parts_(std::move(parts)) {}
  static std::vector<Part> parts_of(std::string_view text);

  std::vector<Part> parts_;
};

}  // namespace halley
