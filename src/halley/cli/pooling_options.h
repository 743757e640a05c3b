// Options of `halley serve` for embeddings, reranking and scores.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <CLI/CLI.hpp>

#include "halley/checkpoint/tokenizer/tokenizer.h"
#include "halley/server/app/pooling_config.h"

namespace halley::cli {

struct PoolingOptions {
  std::string pooling = "auto";
  std::string scoring = "cosine";
  std::string score_template = {};  // a file
};

void add_pooling_options(CLI::App& app, PoolingOptions& options);

/// With what the model's sentence-transformers files say where the options leave it to them. Throws
/// InputError where a file cannot be read or "yes" and "no" are not one token each,
/// UnsupportedError where the model asks for a pooling that we do not do.
PoolingConfig make_pooling_config(const PoolingOptions& options,
                                  const std::filesystem::path& model_dir,
                                  const Tokenizer& tokenizer);

/// Throws UnsupportedError where the options ask for embeddings and the model gives no hidden
/// states. `hidden_size` is the engine's.
void check_pooling_options(const PoolingOptions& options, int64_t hidden_size);

}  // namespace halley::cli
