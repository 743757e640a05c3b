#include "halley/checkpoint/gguf/model_files.h"

#include <optional>
#include <system_error>

#include "halley/base/error.h"
#include "halley/base/file.h"
#include "halley/base/str.h"
#include "halley/checkpoint/gguf/config_text.h"
#include "halley/checkpoint/gguf/gguf_file.h"
#include "halley/checkpoint/gguf/mapped_gguf.h"
#include "halley/checkpoint/gguf/tokenizer_text.h"

namespace halley {
namespace {

std::optional<std::string> make_text(const GgufHeader& header, const std::string& name) {
  const GgufMetadata& metadata = header.metadata;
  if (name == "config.json") return make_config_text(header);
  if (name == "generation_config.json") return make_generation_config_text(metadata);
  if (name == "tokenizer_config.json") return make_tokenizer_config(metadata);
  if (name != "tokenizer.json" && name != "tokenizer.model") return std::nullopt;
  const GgufTokenizer kind = gguf_tokenizer_of(metadata);
  if (name == "tokenizer.json" && kind == GgufTokenizer::kByteLevelBpe) {
    return make_tokenizer_json(metadata);
  }
  if (name == "tokenizer.model" && kind == GgufTokenizer::kSentencePiece) {
    return make_tokenizer_model(metadata);
  }
  return std::nullopt;
}

bool gives_text(const std::filesystem::path& model, const std::string& name) {
  if (name == "config.json" || name == "generation_config.json" ||
      name == "tokenizer_config.json") {
    return true;
  }
  if (name != "tokenizer.json" && name != "tokenizer.model") return false;
  const MappedGguf file(model);
  const GgufTokenizer kind = gguf_tokenizer_of(file.header().metadata);
  return kind ==
         (name == "tokenizer.json" ? GgufTokenizer::kByteLevelBpe : GgufTokenizer::kSentencePiece);
}

}  // namespace

bool has_model_file(const std::filesystem::path& model, const std::string& name) {
  if (is_gguf_file(model)) return gives_text(model, name);
  std::error_code error;
  return std::filesystem::exists(model / name, error);
}

std::string read_model_file(const std::filesystem::path& model, const std::string& name,
                            size_t num_bytes_max) {
  if (!is_gguf_file(model)) return read_text_file(model / name, num_bytes_max);
  const MappedGguf file(model);
  if (auto text = make_text(file.header(), name)) {
    if (text->size() <= num_bytes_max) return *text;
    throw InputError(str(model.string(), ": expected metadata that give a ", name, " of at most ",
                         num_bytes_max, " bytes, got ", text->size(), "."));
  }
  throw InputError(str(model.string(), ": expected metadata that give a ", name,
                       ", got none. Convert the model again, with its tokenizer."));
}

}  // namespace halley
