// The server that `halley bench serve-overhead` measures: `halley serve` with a model that costs
// nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "halley/cli/costless_model.h"

namespace halley::cli {

struct OverheadServerOptions {
  static constexpr int64_t kLengthMax = 4096;  // tokens of prompt and output

  int64_t num_clients = 256;
  int num_http_threads = 2;
};

/// Serves on a free port of 127.0.0.1 until it is destroyed. `times` must outlive it.
class OverheadServer {
 public:
  OverheadServer(const OverheadServerOptions& options, StepTimes& times);
  ~OverheadServer();

  uint16_t port() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace halley::cli
