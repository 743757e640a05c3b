// Decoder steps on a GPU that sample their tokens there: two in flight, decodes as CUDA graphs;
// choices by masks between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/runtime/cuda_stream.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/runtime/pinned_buffer.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/step_runner.h"
#include "halley/models/cuda/cuda_weights.h"
#include "halley/models/cuda/step_memory.h"
#include "halley/models/cuda/step_ops.h"
#include "halley/models/cuda/step_trials.h"
#include "halley/sampling/cuda/cuda_sampler.h"

namespace halley::cuda {

/// A loaded model that is ready for steps; all members must outlive the runner.
struct ReadyModel {
  const CudaDeviceInfo& device;
  const CudaStream& stream;
  const DecoderConfig& config;
  const CudaDecoderWeights& weights;
  DType activation_dtype = DType::kF16;
  StepMemory& memory;
  const ExecContext& host;       // its precision is a step's
  DeviceRanks* ranks = nullptr;  // null: one rank

  CudaContext context() const { return {device, stream, memory.scratch()}; }
};

struct GraphStats {
  int64_t num_graphs = 0;
  int64_t num_launches = 0;
  size_t device_bytes = 0;  // difference of free memory before and after capture
};

/// A step in which every sequence has one row is padded to decode_bucket() rows. The second step of
/// each size is captured as a graph, which serves all later ones that attention's plan gives to the
/// same kernels; the first launches the same operations one by one, with the same results. Models
/// whose experts wait for their routing (cuda_experts.h) run without graphs.
class CudaStepRunner final : public StepRunner {
 public:
  /// Further sizes run without a graph.
  static constexpr size_t kNumGraphsMax = 96;

  explicit CudaStepRunner(const ReadyModel& model);
  /// Waits for the steps in flight.
  ~CudaStepRunner() override;
  CudaStepRunner(const CudaStepRunner&) = delete;
  CudaStepRunner& operator=(const CudaStepRunner&) = delete;

  void start_slot(int32_t slot, const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                  std::span<const int32_t> output_ids) override;
  void launch(const RunnerStep& step, const KvCacheView& cache) override;
  void choose(std::span<const MaskedChoice> choices) override;
  const StepResult& wait() override;
  bool is_ready() const override;

  const GraphStats& graph_stats() const { return stats_; }
  /// Device memory of the sampler and the records, which StepMemory does not include.
  static size_t device_bytes(const DecoderConfig& config, const StepLimits& limits);

 private:
  /// Host state of one launch() or choose(). A result stays valid until the next wait(), when as
  /// many more may be in flight as there may be at all.
  struct InFlight {
    PinnedBuffer arrays, results, logits, masks;
    CudaEvent is_done;
    bool is_choice = false;
    std::vector<int32_t> record_rows;  // of each choice that is not deferred
    int64_t num_logit_rows = 0;        // rows of logits that are copied to the host
    bool has_span = false;             // false for a step without rows
  };
  /// The launches of a decode step follow from this.
  struct GraphKey {
    int64_t num_rows;
    Precision precision;
    std::vector<bool> is_warp_per_item;  // AttentionBatches'

    auto operator<=>(const GraphKey&) const = default;
  };
  /// The sizes of a step on the device.
  struct Layout {
    StepSize size;
    bool is_decode = false;
  };

  void check(const RunnerStep& step, const KvCacheView& cache) const;
  Layout lay_out(const RunnerStep& step);
  void fill(const RunnerStep& step, const KvPageLayout& pages, const Layout& layout,
            InFlight& flight) const;
  void run_alone(const std::function<void()>& run) const;
  void queue(const DeviceStep& step);
  void queue_decode(const DeviceStep& step);
  InFlight& begin_flight(bool is_choice);
  void end_flight(const InFlight& flight);
  void queue_records(int64_t num_records, InFlight& flight) const;
  void queue_results(const RunnerStep& step, const Layout& layout, InFlight& flight);
  void forget_graphs_of_other_cache(const KvCacheView& cache);
  Matrix logits_of(const StepSize& size) const;

  ReadyModel model_;
  bool is_capturable_;
  CudaSampler sampler_;
  DeviceBuffer results_;  // a DeviceSpan, then a ChoiceRecord for each row with logits
  std::array<InFlight, 2 * kNumInFlightMax + 1> flights_;
  int64_t num_queued_ = 0, num_waited_ = 0;    // of both kinds
  std::array<int, 2> num_in_flight_ = {0, 0};  // steps, choices
  std::vector<int32_t> rows_;                  // rows with logits, ascending
  StepResult result_;

  std::vector<KvLayerView> cache_;  // cache that the graphs were captured with
  /// Empty: that kind of step has run once.
  std::map<GraphKey, std::optional<CudaGraph>> graphs_;
  GraphStats stats_;
  StepTrials trials_;
};

}  // namespace halley::cuda
