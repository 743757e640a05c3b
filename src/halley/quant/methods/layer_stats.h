// Statistics of one decoder layer's inputs, keys and values, gathered while it runs on calibration
// tokens.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "halley/core/exec_context.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/layer_observer.h"
#include "halley/quant/solve/input_stats.h"

namespace halley {

class LayerStats final : public LayerObserver {
 public:
  struct Request {
    bool has_gram = false;
    int64_t num_rows = 256;  // kept of each input
    int64_t num_tokens = 0;  // of the whole run
  };

  /// `spec` must outlive the statistics.
  LayerStats(ExecContext& context, const LayerSpec& spec, const Request& request);

  void on_linear(const LinearSpec& spec, const LinearOp& op, ConstMatrix x, ConstMatrix y) override;
  void on_keys_values(ConstMatrix k, ConstMatrix v) override;

  /// Ends the gathering; of() may be used from now on.
  void finish();
  /// Gives each input rows of random normal values, on which errors can be measured where nothing
  /// was gathered. The same values for the same layer.
  void fill_rows(int64_t num_rows);
  /// Statistics of a linear layer of the LayerSpec. num_tokens is 0 for an expert that no token
  /// reached.
  InputStats& of(const LinearSpec& spec) { return stats_.at(&spec); }
  /// Magnitudes of the keys, normed and rotated, and of the values, each [J * D]. Nothing was kept
  /// of single tokens. Empty where the layer did not run.
  const InputStats& keys() const { return keys_; }
  const InputStats& values() const { return values_; }

 private:
  void add_collector(const LinearSpec& spec, const Request& request, double share_of_tokens);

  ExecContext& context_;
  std::map<const LinearSpec*, InputStatsCollector> collectors_;
  std::map<const LinearSpec*, InputStats> stats_;
  std::optional<InputStatsCollector> key_collector_, value_collector_;
  InputStats keys_, values_;
};

/// The linear layers of a decoder layer in the order in which they run: q/k/v, o, the router,
/// gate/up and down of each expert.
std::vector<const LinearSpec*> list_linears(const LayerSpec& spec);

}  // namespace halley
