// Writes an answer that is not streamed, in pieces of bounded size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halley/server/openai/answer.h"
#include "halley/server/openai/logprob_list.h"
#include "halley/server/openai/token_texts.h"

namespace halley {

/// One choice of a whole answer.
struct WholeChoice {
  ChoiceDelta delta;                      // without log probabilities
  LogprobList prompt_logprobs, logprobs;  // one after the other; both empty: null
  LogprobList scored_prompt;              // for prompt_logprobs; with a prompt's first choice
};

/// The JSON of a token exists only while its piece is written. Not thread-safe.
class AnswerWriter {
 public:
  struct Parts {
    AnswerHead head;
    ApiUsage usage;
    size_t num_choices = 0;
    /// Gives choice i; called for each once, in order, when its turn to be written comes.
    std::function<WholeChoice(size_t index)> take_choice;
  };
  /// `texts` must outlive it.
  AnswerWriter(Parts parts, const TokenTexts& texts);
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;

  /// Appends to `out` until it has `num_bytes`, and at most one token or kSliceBytes of text more.
  /// Returns false once all of the answer was written.
  [[nodiscard]] bool write(size_t num_bytes, std::string& out);

  /// The memory of the choice that is being written.
  size_t num_bytes() const {
    return choice_.prompt_logprobs.num_bytes() + choice_.logprobs.num_bytes() +
           scored_prompt_.num_bytes();
  }

  static constexpr size_t kSliceBytes = size_t{4} << 10;

 private:
  /// Writes one more bit of something; false: that was the last.
  using Step = std::function<bool(std::string& out)>;

  void begin_next();
  void add_choice();
  void add_reasoning();
  void add_calls();
  void add_logprobs();
  void add_ids(const char* name, std::vector<int32_t> ids);
  void add_scored_prompt(LogprobList prompt);
  void add(std::string bytes);
  void add_text(std::string text) {
    add_text(std::make_shared<const std::string>(std::move(text)));
  }
  void add_text(std::shared_ptr<const std::string> text);
  /// The list must have at least one element.
  void add_list(size_t size, std::function<void(size_t, std::string&)> write_element);
  TokenDetail detail(size_t index) const;

  const Parts parts_;
  const TokenTexts& texts_;
  std::deque<Step> steps_;
  size_t num_begun_ = 0;  // choices
  bool has_begun_ = false, has_end_ = false;
  WholeChoice choice_;
  int64_t text_offset_ = 0;  // of the next token of choice_, in characters
  // A chat has them behind its choices.
  LogprobList scored_prompt_;
  std::vector<int32_t> prompt_token_ids_;
};

}  // namespace halley
