#include "halley/models/cuda/cuda_decoder.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/cuda/runtime/cuda_graph.h"
#include "halley/cuda/runtime/memory_plan.h"
#include "halley/models/base/check_step.h"
#include "halley/models/base/decoder.h"
#include "halley/models/base/op_summary.h"
#include "halley/models/base/step_cost.h"
#include "halley/models/cuda/step_arrays.h"

namespace halley::cuda {
namespace {

/// Rows of logits that forward() prepares by itself: it computes more in several parts.
constexpr int64_t kLogitRowsAtOnce = 256;

class CudaKvMemory final : public KvMemory {
 public:
  explicit CudaKvMemory(size_t num_bytes) : buffer_(num_bytes, "the KV cache") {}
  std::byte* data() override { return buffer_.data(); }

 private:
  DeviceBuffer buffer_;
};

ModelShape shape_on_gpu(const DecoderConfig& config, DType activation_dtype) {
  ModelShape shape = shape_of(config);
  shape.hidden_size = 0;  // hidden states stay on the device
  if (!config.kv_dtype) shape.kv_dtype_default = kv_dtype_of(activation_dtype);
  return shape;
}

/// Runs before anything is loaded.
CudaDeviceInfo use_device_for(const DecoderConfig& config, const CudaDecoderOptions& options) {
  const std::string reason = why_not_on_gpu(config, options.activation_dtype);
  if (!reason.empty()) {
    throw UnsupportedError(str(config.where, ": expected a model that the GPU can run, got ",
                               reason, ". Use --device cpu."));
  }
  return use_cuda_device(options.ordinal);
}

std::unique_ptr<DeviceRanks> make_ranks(const CudaDeviceInfo& device, Communicator* ranks) {
  return ranks == nullptr ? nullptr : std::make_unique<DeviceRanks>(*ranks, device);
}

/// Rows of f32.
void copy_to_host(const CudaStream& stream, ConstMatrix from, Matrix to) {
  const auto bytes = [](int64_t count) { return static_cast<size_t>(count) * sizeof(float); };
  check_cuda(cudaMemcpy2DAsync(to.data, bytes(to.row_stride), from.data, bytes(from.row_stride),
                               bytes(from.num_cols), static_cast<size_t>(from.num_rows),
                               cudaMemcpyDeviceToHost, stream.get()),
             "copy of a step's results");
}

CublasLtGemm make_lt(const CudaContext& context, const CudaDecoderOptions& options) {
  CublasLtOptions lt;
  lt.choice.is_batch_invariant = options.is_batch_invariant;
  return CublasLtGemm(context, lt);
}

}  // namespace

CudaDecoder::CudaDecoder(ExecContext& host, DecoderConfig config, const LinearLoading& loading,
                         const CudaDecoderOptions& options, const PartLoaded& on_part)
    : host_(host),
      config_(std::move(config)),
      options_(options),
      shape_(shape_on_gpu(config_, options.activation_dtype)),
      device_(use_device_for(config_, options)),
      ranks_(make_ranks(device_, options.ranks)),
      lt_memory_(CublasLtOptions().workspace_bytes, "cuBLASLt"),
      lt_(make_lt({device_, stream_, lt_memory_}, options)),
      weights_(load_weights(host, loading, on_part)) {
  HALLEY_CHECK((ranks_ == nullptr ? 1 : ranks_->num_ranks()) == config_.share.num_ranks,
               config_.share.num_ranks);
  HALLEY_CHECK((options.stages != nullptr) == (config_.share.num_stages > 1),
               config_.share.num_stages);
  if (ranks_ != nullptr) exchange_shares();
}

/// Tells the other ranks which columns this one has.
void CudaDecoder::exchange_shares() {
  std::vector<int64_t> begins = {config_.share.vocabulary.begin};
  std::vector<int64_t> num_columns = {config_.vocab_size};
  for (const LayerSpec& layer : config_.layers) {
    for (const LinearSpec* spec : {&layer.o, layer.mlp.down.data()}) {
      begins.push_back(spec->inputs ? spec->inputs->begin : 0);  // whole experts have all
      num_columns.push_back(spec->in_features);
    }
  }
  const std::vector<ColumnShares> shares = ranks_->exchange_shares(begins, num_columns);
  weights_.vocabulary = shares[0];
  for (size_t i = 0; i < weights_.layers.size(); ++i) {
    CudaLayerWeights& layer = weights_.layers[i];
    if (layer.o.picks_inputs()) layer.o_inputs = shares[1 + 2 * i];
    if (layer.down.picks_inputs()) layer.down_inputs = shares[2 + 2 * i];
  }
}

CudaDecoderWeights CudaDecoder::load_weights(ExecContext& host, const LinearLoading& loading,
                                             const PartLoaded& on_part) {
  const CudaContext context = {device_, stream_, lt_memory_};
  return load_cuda_weights({host, context, lt_, options_.activation_dtype}, config_, loading,
                           on_part);
}

CudaDecoder::~CudaDecoder() {
  // Queued work uses memory that is freed now. Nobody is left to handle an error of it.
  static_cast<void>(cudaStreamSynchronize(stream_.get()));
}

void CudaDecoder::synchronize() const {
  if (ranks_ != nullptr) ranks_->wait_for(stream_);
  stream_.synchronize();
}

bool CudaDecoder::is_capturable() const {
  return weights_.is_capturable() && (ranks_ == nullptr || ranks_->is_capturable());
}

void CudaDecoder::use_device() const {
  check_cuda(cudaSetDevice(device_.ordinal), "choice of the device");
}

void CudaDecoder::check_prepared(const StepLimits& limits) const {
  HALLEY_CHECK(limits.num_sequences >= 1 && limits.num_rows >= 1 && limits.num_logit_rows >= 0 &&
                   limits.max_length >= 1 && limits.page_tokens >= 1,
               limits.num_sequences, limits.num_rows, limits.num_logit_rows, limits.max_length,
               limits.page_tokens);
  for (const LayerSpec& layer : config_.layers) {
    const KvPageLayout pages = {.dtype = limits.kv_dtype,
                                .num_kv_heads = config_.num_kv_heads,
                                .head_dim = config_.head_dim,
                                .page_tokens = limits.page_tokens};
    const std::string reason =
        why_not_cuda_attention(attention_problem(config_, layer), pages, options_.activation_dtype);
    if (reason.empty()) continue;
    throw UnsupportedError(str("attention on the GPU: expected what its kernels serve, got ",
                               reason, ". Choose another --kv-dtype, or use --device cpu."));
  }
}

void CudaDecoder::set_aside(const StepLimits& limits) {
  synchronize();
  runner_.reset();
  memory_.reset();
  memory_ = std::make_unique<StepMemory>(config_, weights_, limits,
                                         options_.is_batch_invariant ? 0 : device_.num_sms);
  staging_ = PinnedBuffer(memory_->array_bytes());
}

std::optional<int64_t> CudaDecoder::prepare(const StepLimits& limits) {
  use_device();
  StepLimits asked = limits;
  asked.max_length = std::min(asked.max_length, config_.max_positions);
  check_prepared(asked);
  set_aside(asked);
  if (options_.stages == nullptr)
    runner_ = std::make_unique<CudaStepRunner>(ReadyModel{device_, stream_, config_, weights_,
                                                          options_.activation_dtype, *memory_,
                                                          host_, ranks_.get()});
  const size_t workspace_bytes =
      memory_->device_bytes() + CudaStepRunner::device_bytes(config_, asked);
  const size_t weight_bytes = weights_.device_bytes() + lt_memory_.num_bytes();
  const KvPageLayout page = {.dtype = asked.kv_dtype,
                             .num_kv_heads = config_.num_kv_heads,
                             .head_dim = config_.head_dim,
                             .page_tokens = asked.page_tokens};
  const GpuMemoryPlan plan = plan_gpu_memory(
      {.total_bytes = device_.total_bytes,
       .free_bytes = free_device_bytes() + weight_bytes + workspace_bytes,
       .utilization = options_.memory_utilization,
       .weight_bytes = weight_bytes,
       .workspace_bytes = workspace_bytes,
       .kv_page_bytes = page.page_bytes() * static_cast<size_t>(config_.num_layers),
       .num_pages_min = (asked.max_length + asked.page_tokens - 1) / asked.page_tokens});
  return static_cast<int64_t>(plan.kv_bytes);
}

std::unique_ptr<KvMemory> CudaDecoder::make_kv_memory(size_t num_bytes) const {
  use_device();
  return std::make_unique<CudaKvMemory>(num_bytes);
}

/// Raises the limits to hold this step and those before.
void CudaDecoder::grow(const ForwardBatch& batch, const KvCacheView& cache) {
  const KvPageLayout& layout = cache.layers[0].layout;
  StepLimits needed = {.num_sequences = static_cast<int64_t>(batch.sequences.size()),
                       .num_rows = static_cast<int64_t>(batch.token_ids.size()),
                       .kv_dtype = layout.dtype,
                       .page_tokens = layout.page_tokens};
  needed.num_logit_rows = std::min(static_cast<int64_t>(batch.logit_rows.size()), kLogitRowsAtOnce);
  for (const BatchSequence& sequence : batch.sequences) {
    needed.max_length =
        std::max(needed.max_length, sequence.num_past_tokens + sequence.num_new_tokens);
  }
  if (memory_) {
    const StepLimits& limits = memory_->limits();
    if (needed.num_sequences <= limits.num_sequences && needed.num_rows <= limits.num_rows &&
        needed.max_length <= limits.max_length && needed.page_tokens == limits.page_tokens &&
        needed.kv_dtype == limits.kv_dtype) {
      return;
    }
    needed.num_sequences = std::max(needed.num_sequences, limits.num_sequences);
    needed.num_rows = std::max(needed.num_rows, limits.num_rows);
    needed.num_logit_rows = std::max(needed.num_logit_rows, limits.num_logit_rows);
  }
  // Lengths grow with every step of a sequence.
  needed.max_length = config_.max_positions;
  check_prepared(needed);
  if (ranks_ == nullptr) return set_aside(needed);
  ranks_->run_alone(stream_, [&] { set_aside(needed); });
}

DeviceStep CudaDecoder::upload(const ForwardBatch& batch, const KvCacheView& cache) {
  const StepSize size = {.num_rows = static_cast<int64_t>(batch.token_ids.size()),
                         .num_logit_rows = static_cast<int64_t>(batch.logit_rows.size())};
  const KvPageLayout& layout = cache.layers[0].layout;
  fill_arrays(batch, batch.logit_rows, layout, config_.position_offset, size, staging_.data());
  check_cuda(cudaMemcpyAsync(memory_->arrays(), staging_.data(), plan_arrays(size).num_bytes,
                             cudaMemcpyHostToDevice, stream_.get()),
             "copy of a step's arrays");
  memory_->attention().update(stream_, cache.layers[0], batch.sequences);
  DeviceStep step = {
      .num_rows = size.num_rows,
      .num_logit_rows = size.num_logit_rows,
      .arrays = memory_->arrays(),
      .activations = memory_->activations(),
      .num_logit_rows_at_once = std::min(size.num_logit_rows, memory_->num_logit_rows()),
      .precision = batch.precision.value_or(host_.precision),
      .cache = cache.layers,
      .attention = &memory_->attention(),
      .other_hidden = memory_->other_hidden(),
      .ranks = ranks_.get()};
  for (const BatchSequence& sequence : batch.sequences) {
    (sequence.num_new_tokens == 1 ? step.has_decodes : step.has_prefills) = true;
  }
  return step;
}

/// [num_rows, hidden_size] f32 on the host, for all steps.
Matrix CudaDecoder::staged_hidden(int64_t num_rows) {
  const auto num_bytes = static_cast<size_t>(num_rows * config_.hidden_size) * sizeof(float);
  if (hidden_.num_bytes() < num_bytes) {
    hidden_ = {};
    hidden_ = PinnedBuffer(num_bytes);
  }
  return f32_matrix(reinterpret_cast<float*>(hidden_.data()), num_rows, config_.hidden_size);
}

void CudaDecoder::receive_hidden(DeviceStep& step) {
  if (config_.share.is_first()) return;
  const Matrix received = staged_hidden(step.num_rows);
  options_.stages->receive(received);
  step.received = received;
}

void CudaDecoder::queue(const DeviceStep& step, Matrix logits, OpTimer* timer) {
  const CudaContext on = context();
  StepOps ops(on, config_, weights_, options_.activation_dtype, step, timer);
  ops.queue_layers();
  if (!config_.share.is_last()) {
    const Matrix to = staged_hidden(step.num_rows);
    return copy_to_host(stream_, ops.hidden(), to);
  }
  for (int64_t begin = 0; begin < step.num_logit_rows; begin += step.num_logit_rows_at_once) {
    const int64_t end = std::min(begin + step.num_logit_rows_at_once, step.num_logit_rows);
    const Matrix piece = ops.queue_logits(begin, end);
    if (logits.data == nullptr) continue;
    copy_to_host(stream_, piece, logits.rows(begin, end));
  }
}

void CudaDecoder::forward(const ForwardBatch& batch, const KvCacheView& cache, Matrix logits) {
  use_device();
  check_step(config_, batch, cache);
  HALLEY_CHECK(logits.num_rows == static_cast<int64_t>(batch.logit_rows.size()), logits.num_rows);
  HALLEY_CHECK(logits.num_cols == config_.vocab_size, logits.num_cols);
  if (batch.token_ids.empty()) return;
  grow(batch, cache);
  DeviceStep step = upload(batch, cache);
  receive_hidden(step);
  trials_.run_first(context(), config_, weights_, options_.activation_dtype, step);
  queue(step, logits, nullptr);
  synchronize();
  if (!config_.share.is_last()) options_.stages->send(staged_hidden(step.num_rows));
}

std::vector<OpTime> CudaDecoder::profile(const ForwardBatch& batch, const KvCacheView& cache,
                                         Matrix logits) {
  forward(batch, cache, logits);  // checks, and one-time initialisation
  // Other stages take part in one step alone.
  if (batch.token_ids.empty() || options_.stages != nullptr) return {};
  const DeviceStep step = upload(batch, cache);
  OpTimer timer(stream_, is_capturable());
  if (!is_capturable()) {
    queue(step, Matrix(), &timer);
  } else {
    const CudaGraph graph = CudaGraph::capture(stream_, [&] { queue(step, Matrix(), &timer); });
    for (int i = 0; i < 2; ++i) graph.launch(stream_);  // the first launch uploads it to the GPU
    synchronize();
  }
  synchronize();
  return timer.times();
}

namespace {

/// Best time of each graph, in microseconds. The graphs take turns, because a GPU changes its clock
/// rate.
std::vector<double> graph_times_us(const CudaStream& stream, std::span<const CudaGraph> graphs) {
  constexpr int kNumRuns = 4, kNumRounds = 6;
  std::vector<double> least(graphs.size(), std::numeric_limits<double>::infinity());
  const CudaEvent begin(CudaEvent::Time::kYes), end(CudaEvent::Time::kYes);
  for (int round = 0; round < kNumRounds; ++round) {
    for (size_t i = 0; i < graphs.size(); ++i) {
      stream.record(begin);
      for (int run = 0; run < kNumRuns; ++run) graphs[i].launch(stream);
      stream.record(end);
      end.synchronize();
      if (round == 0) continue;  // the first launch uploads the graph
      least[i] = std::min(least[i], 1e3 * double{end.milliseconds_since(begin)} / kNumRuns);
    }
  }
  return least;
}

}  // namespace

std::vector<OpTime> CudaDecoder::op_costs(const ForwardBatch& batch, const KvCacheView& cache,
                                          Matrix logits) {
  std::vector<std::string> names = {""};  // nothing is left out
  for (const OpTime& time : profile(batch, cache, logits)) {
    const std::string name = op_name_without_layer(time.name);
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  if (names.size() == 1 || !is_capturable()) return {};
  DeviceStep step = upload(batch, cache);
  std::vector<CudaGraph> graphs;
  for (const std::string& name : names) {
    step.left_out = name;
    graphs.push_back(CudaGraph::capture(stream_, [&] { queue(step, Matrix(), nullptr); }));
  }
  const std::vector<double> times = graph_times_us(stream_, graphs);
  std::vector<OpTime> costs = {{.name = "step", .duration_us = times[0]}};
  for (size_t i = 1; i < names.size(); ++i) {
    costs.push_back({.name = names[i], .duration_us = times[0] - times[i]});
  }
  forward(batch, cache, logits);  // fills the cache
  return costs;
}

std::vector<PrecisionLevel> CudaDecoder::precision_levels(KvDType kv_dtype) const {
  return nested_levels(config_, memory_of(Precision::kFull), memory_of(Precision::kLow), kv_dtype);
}

WeightMemory CudaDecoder::weight_memory() const { return memory_of(host_.precision); }

WeightMemory CudaDecoder::memory_of(Precision precision) const {
  WeightMemory memory;
  const auto add = [&](const CudaLinear& linear, std::vector<WeightMemory::Bytes>& bytes) {
    for (const CudaLinear::Section& section : linear.sections()) {
      for (const DeviceBuffer* buffer : section.buffers(precision)) {
        bytes.emplace_back(buffer->data(), buffer->num_bytes());
      }
    }
  };
  for (const CudaLayerWeights& layer : weights_.layers) {
    add(layer.qkv, memory.always_read);
    add(layer.o, memory.always_read);
    if (!layer.experts) {
      add(layer.gate_up, memory.always_read);
      add(layer.down, memory.always_read);
      continue;
    }
    add(*layer.router, memory.always_read);
    for (const CudaLinear& expert : layer.experts->gate_up()) add(expert, memory.experts);
    for (const CudaLinear& expert : layer.experts->down()) add(expert, memory.experts);
    memory.expert_share = static_cast<double>(layer.experts->spec().num_experts_per_token) /
                          static_cast<double>(layer.experts->num_routed());
  }
  add(weights_.output, memory.always_read);
  return memory;
}

}  // namespace halley::cuda
