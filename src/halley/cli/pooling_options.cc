#include "halley/cli/pooling_options.h"

#include <vector>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/config/sentence_pooling.h"

namespace halley::cli {
namespace {

constexpr size_t kTemplateBytesMax = size_t{1} << 16;
constexpr const char* kAuto = "auto";
constexpr const char* kYesNo = "yes-no";

int32_t single_token(const Tokenizer& tokenizer, const char* word) {
  const std::vector<int32_t> ids = tokenizer.encode(word, /*add_special_tokens=*/false);
  if (ids.size() == 1) return ids[0];
  throw InputError(str("--scoring yes-no: expected a vocabulary in which ", quote(word),
                       " is one token, got ", ids.size(), ". Use --scoring cosine."));
}

void set_pooling(const PoolingOptions& options, const std::filesystem::path& model_dir,
                 PoolingConfig& config) {
  if (options.pooling != kAuto) {
    config.kind = options.pooling == "mean" ? Pooling::Kind::kMean : Pooling::Kind::kLast;
    return;
  }
  const std::optional<SentencePooling> files = load_sentence_pooling(model_dir);
  if (!files) return;
  config.kind = files->mode == SentencePooling::Mode::kMeanTokens ? Pooling::Kind::kMean
                                                                  : Pooling::Kind::kLast;
  config.normalizes = files->normalizes;
}

}  // namespace

void add_pooling_options(CLI::App& app, PoolingOptions& options) {
  constexpr const char* kGroup = "Embeddings";
  app.add_option("--pooling", options.pooling,
                 "Embeddings from the last token's hidden state or the mean of all; auto: as the "
                 "model's modules.json says, else last")
      ->check(CLI::IsMember({kAuto, "last", "mean"}))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--scoring", options.scoring,
                 "What /v1/rerank and /v1/score compare by. cosine: the embeddings; yes-no: the "
                 "model's answer to whether the document fits, as for Qwen3-Reranker")
      ->check(CLI::IsMember({"cosine", kYesNo}))
      ->capture_default_str()
      ->group(kGroup);
  app.add_option("--score-template", options.score_template,
                 "File with the prompt for --scoring yes-no, with {query}, {document} and, if "
                 "wanted, {instruction}; default: that of Qwen3-Reranker")
      ->group(kGroup);
}

PoolingConfig make_pooling_config(const PoolingOptions& options,
                                  const std::filesystem::path& model_dir,
                                  const Tokenizer& tokenizer) {
  PoolingConfig config;
  set_pooling(options, model_dir, config);
  if (options.scoring == kYesNo) {
    config.yes_no = YesNoScoring{.yes_id = single_token(tokenizer, "yes"),
                                 .no_id = single_token(tokenizer, "no")};
    if (!options.score_template.empty()) {
      config.yes_no->prompt = ScoreTemplate::parse(
          read_text_file(options.score_template, kTemplateBytesMax), options.score_template);
    }
  } else if (!options.score_template.empty()) {
    throw InputError("--score-template: expected --scoring yes-no with it, got cosine.");
  }
  return config;
}

void check_pooling_options(const PoolingOptions& options, int64_t hidden_size) {
  if (options.pooling == kAuto || hidden_size > 0) return;
  throw UnsupportedError(str("--pooling ", options.pooling,
                             ": expected a model that gives hidden states, which one on the CPU in "
                             "one stage does, got one that gives none. Add --device cpu, or leave "
                             "the option out."));
}

}  // namespace halley::cli
