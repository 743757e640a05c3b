#include "halley/models/cuda/cuda_step_runner.h"

#include <algorithm>
#include <utility>

#include <cuda_runtime_api.h>

#include "halley/base/check.h"
#include "halley/cuda/runtime/cuda_check.h"
#include "halley/models/base/check_step.h"
#include "halley/models/cuda/end_step.h"
#include "halley/models/cuda/step_arrays.h"
#include "halley/models/cuda/step_plan.h"
#include "halley/sampling/cuda/slot_state.h"

namespace halley::cuda {
namespace {

bool is_same(const KvLayerView& a, const KvLayerView& b) {
  return a.pages == b.pages && a.layout.dtype == b.layout.dtype &&
         a.layout.page_tokens == b.layout.page_tokens && a.scales.k == b.scales.k &&
         a.scales.v == b.scales.v;
}

/// Bytes of a step's span and the records after it.
constexpr size_t result_bytes(int64_t num_records) {
  return sizeof(DeviceSpan) + static_cast<size_t>(num_records) * sizeof(ChoiceRecord);
}

size_t result_bytes(const StepLimits& limits) {
  return result_bytes(std::max(limits.num_logit_rows, limits.num_sequences));
}

template <typename Byte>
auto* records_in(Byte* results) {
  return reinterpret_cast<ChoiceRecord*>(results + sizeof(DeviceSpan));
}

void grow(PinnedBuffer& buffer, size_t num_bytes) {
  buffer = {};
  buffer = PinnedBuffer(num_bytes);
}

}  // namespace

size_t CudaStepRunner::device_bytes(const DecoderConfig& config, const StepLimits& limits) {
  return CudaSampler::num_bytes(config.vocab_size, limits.num_sequences) + result_bytes(limits);
}

CudaStepRunner::CudaStepRunner(const ReadyModel& model)
    : model_(model),
      is_capturable_(model.weights.is_capturable() &&
                     (model.ranks == nullptr || model.ranks->is_capturable())),
      sampler_(model.config.vocab_size, model.memory.limits().num_sequences),
      results_(result_bytes(model.memory.limits()), "chosen tokens") {
  for (InFlight& flight : flights_) {
    flight.arrays = PinnedBuffer(model.memory.array_bytes());
    flight.results = PinnedBuffer(results_.num_bytes());
  }
}

CudaStepRunner::~CudaStepRunner() {
  // Queued work uses memory that is freed now. Nobody is left to handle an error of it.
  static_cast<void>(cudaStreamSynchronize(model_.stream.get()));
}

void CudaStepRunner::start_slot(int32_t slot, const TokenChoice& choice,
                                std::span<const int32_t> prompt_ids,
                                std::span<const int32_t> output_ids) {
  check_cuda(cudaSetDevice(model_.device.ordinal), "choice of the device");
  sampler_.start_slot(model_.stream, slot, choice, prompt_ids, output_ids);
}

void CudaStepRunner::check(const RunnerStep& step, const KvCacheView& cache) const {
  const StepLimits& limits = model_.memory.limits();
  check_step(model_.config, step.batch, cache, limits.num_sequences);
  const KvPageLayout& pages = cache.layers[0].layout;
  HALLEY_CHECK(pages.dtype == limits.kv_dtype && pages.page_tokens == limits.page_tokens &&
                   static_cast<int64_t>(step.batch.sequences.size()) <= limits.num_sequences &&
                   static_cast<int64_t>(step.batch.token_ids.size()) <= limits.num_rows,
               pages.page_tokens, step.batch.sequences.size(), step.batch.token_ids.size());
  int64_t last = -1;
  for (const RowChoice& choice : step.choices) {
    HALLEY_CHECK(choice.row > last && choice.slot >= 0 && choice.slot < limits.num_sequences,
                 choice.row, choice.slot);
    last = choice.row;
  }
  HALLEY_CHECK(last < static_cast<int64_t>(step.batch.token_ids.size()), last);
}

/// Selects the rows with logits. A decode step computes those of all rows, so that its graph serves
/// any choice.
CudaStepRunner::Layout CudaStepRunner::lay_out(const RunnerStep& step) {
  const auto num_rows = static_cast<int64_t>(step.batch.token_ids.size());
  const bool is_decode = static_cast<int64_t>(step.batch.sequences.size()) == num_rows;
  rows_.clear();
  if (is_decode) {
    const StepLimits& limits = model_.memory.limits();
    const int64_t bucket = decode_bucket(num_rows, std::min(limits.num_sequences, limits.num_rows));
    for (int64_t row = 0; row < bucket; ++row) rows_.push_back(static_cast<int32_t>(row));
    return {.size = {.num_rows = bucket, .num_logit_rows = bucket}, .is_decode = true};
  }
  auto wanted = step.batch.logit_rows.begin();
  for (const RowChoice& choice : step.choices) {
    while (wanted != step.batch.logit_rows.end() && *wanted < choice.row)
      rows_.push_back(*wanted++);
    if (wanted != step.batch.logit_rows.end() && *wanted == choice.row) ++wanted;
    rows_.push_back(choice.row);
  }
  rows_.insert(rows_.end(), wanted, step.batch.logit_rows.end());
  const auto num_logit_rows = static_cast<int64_t>(rows_.size());
  HALLEY_CHECK(num_logit_rows <= model_.memory.num_logit_rows(), num_logit_rows);
  return {.size = {.num_rows = num_rows, .num_logit_rows = num_logit_rows}};
}

void CudaStepRunner::fill(const RunnerStep& step, const KvPageLayout& pages, const Layout& layout,
                          InFlight& flight) const {
  fill_arrays(step.batch, rows_, pages, model_.config.position_offset, layout.size,
              flight.arrays.data());
  auto* slots =
      reinterpret_cast<int32_t*>(flight.arrays.data() + plan_arrays(layout.size).choice_slots);
  std::fill(slots, slots + layout.size.num_logit_rows, -1);
  flight.record_rows.clear();
  auto found = rows_.begin();
  for (const RowChoice& choice : step.choices) {
    found = std::lower_bound(found, rows_.end(), choice.row);
    const auto index = found - rows_.begin();
    slots[index] = choice.slot | (choice.is_deferred ? kIsDeferred : 0);
    if (!choice.is_deferred) flight.record_rows.push_back(static_cast<int32_t>(index));
  }
}

/// See DeviceRanks::run_alone(); one rank does not care.
void CudaStepRunner::run_alone(const std::function<void()>& run) const {
  if (model_.ranks == nullptr) return run();
  model_.ranks->run_alone(model_.stream, run);
}

void CudaStepRunner::queue(const DeviceStep& step) {
  const CudaContext context = model_.context();
  const ArrayPlan arrays = plan_arrays({step.num_rows, step.num_logit_rows});
  StepOps ops(context, model_.config, model_.weights, model_.activation_dtype, step);
  ops.queue_layers();
  if (step.num_logit_rows == 0) return end_step(context, step.span);
  const Matrix logits = ops.queue_logits(0, step.num_logit_rows);
  const std::byte* slots = model_.memory.arrays() + arrays.choice_slots;
  sampler_.choose(context, logits,
                  {.slots = reinterpret_cast<const int32_t*>(slots),
                   .records = records_in(results_.data()),
                   .span = step.span});
}

void CudaStepRunner::queue_decode(const DeviceStep& step) {
  const auto [found, is_new] = graphs_.try_emplace(
      {step.num_rows, step.precision, model_.memory.attention().is_warp_per_item()});
  std::optional<CudaGraph>& graph = found->second;
  if (!graph) {
    const bool has_room = stats_.num_graphs < static_cast<int64_t>(kNumGraphsMax);
    // The first run of a size also loads its kernels, which a capture might not do.
    if (is_new || !is_capturable_ || !has_room) return queue(step);
    const size_t free_before = free_device_bytes();
    run_alone([&] {
      graph = CudaGraph::capture(model_.stream, [&] { queue(step); });
      graph->upload(model_.stream);
    });
    const size_t free_after = free_device_bytes();
    ++stats_.num_graphs;
    stats_.device_bytes += free_before - std::min(free_before, free_after);
  }
  graph->launch(model_.stream);
  ++stats_.num_launches;
}

void CudaStepRunner::forget_graphs_of_other_cache(const KvCacheView& cache) {
  const bool is_known =
      std::equal(cache.layers.begin(), cache.layers.end(), cache_.begin(), cache_.end(), is_same);
  if (is_known) return;
  if (!graphs_.empty()) {  // they may be running
    run_alone([&] {
      model_.stream.synchronize();
      graphs_.clear();
    });
  }
  stats_ = {};
  cache_.assign(cache.layers.begin(), cache.layers.end());
}

Matrix CudaStepRunner::logits_of(const StepSize& size) const {
  const ActivationPlan plan = plan_activations(model_.config, size);
  return {model_.memory.activations() + plan.logits, DType::kF32, size.num_logit_rows,
          model_.config.vocab_size, row_stride(DType::kF32, model_.config.vocab_size)};
}

CudaStepRunner::InFlight& CudaStepRunner::begin_flight(bool is_choice) {
  int& num_in_flight = num_in_flight_[is_choice ? 1 : 0];
  HALLEY_CHECK(num_in_flight < kNumInFlightMax, num_in_flight, is_choice);
  ++num_in_flight;
  InFlight& flight = flights_[static_cast<size_t>(num_queued_) % flights_.size()];
  flight.is_choice = is_choice;
  flight.record_rows.clear();
  flight.num_logit_rows = 0;
  flight.has_span = false;
  return flight;
}

void CudaStepRunner::end_flight(const InFlight& flight) {
  model_.stream.record(flight.is_done);
  ++num_queued_;
}

void CudaStepRunner::queue_records(int64_t num_records, InFlight& flight) const {
  check_cuda(cudaMemcpyAsync(flight.results.data(), results_.data(), result_bytes(num_records),
                             cudaMemcpyDeviceToHost, model_.stream.get()),
             "copy of chosen tokens");
}

void CudaStepRunner::choose(std::span<const MaskedChoice> choices) {
  check_cuda(cudaSetDevice(model_.device.ordinal), "choice of the device");
  const auto num_choices = static_cast<int64_t>(choices.size());
  const size_t image_bytes = sampler_.image_bytes(num_choices);
  InFlight& flight = begin_flight(/*is_choice=*/true);
  if (flight.masks.num_bytes() < image_bytes) run_alone([&] { grow(flight.masks, image_bytes); });
  sampler_.write_image(choices, flight.masks.data());
  sampler_.choose_deferred(model_.context(), flight.masks.data(), num_choices,
                           records_in(results_.data()));
  for (int32_t row = 0; row < num_choices; ++row) flight.record_rows.push_back(row);
  queue_records(num_choices, flight);
  end_flight(flight);
}

void CudaStepRunner::queue_results(const RunnerStep& step, const Layout& layout, InFlight& flight) {
  queue_records(flight.record_rows.empty() ? 0 : flight.record_rows.back() + 1, flight);
  const std::span<const int32_t> wanted = step.batch.logit_rows;
  flight.num_logit_rows = static_cast<int64_t>(wanted.size());
  if (wanted.empty()) return;
  const auto row_bytes = static_cast<size_t>(model_.config.vocab_size) * sizeof(float);
  if (flight.logits.num_bytes() < wanted.size() * row_bytes) {
    run_alone([&] { grow(flight.logits, wanted.size() * row_bytes); });
  }
  const Matrix logits = logits_of(layout.size);
  const auto index_of = [&](int32_t row) {
    return std::lower_bound(rows_.begin(), rows_.end(), row) - rows_.begin();
  };
  for (size_t begin = 0, end = 0; begin < wanted.size(); begin = end) {
    const int64_t first = index_of(wanted[begin]);
    for (end = begin + 1; end < wanted.size(); ++end) {
      if (index_of(wanted[end]) != first + static_cast<int64_t>(end - begin)) break;
    }
    check_cuda(cudaMemcpy2DAsync(flight.logits.data() + begin * row_bytes, row_bytes,
                                 logits.row<float>(first),
                                 static_cast<size_t>(logits.row_stride) * sizeof(float), row_bytes,
                                 end - begin, cudaMemcpyDeviceToHost, model_.stream.get()),
               "copy of logits");
  }
}

void CudaStepRunner::launch(const RunnerStep& step, const KvCacheView& cache) {
  check(step, cache);
  check_cuda(cudaSetDevice(model_.device.ordinal), "choice of the device");
  InFlight& flight = begin_flight(/*is_choice=*/false);
  flight.has_span = !step.batch.token_ids.empty();
  if (!step.batch.token_ids.empty()) {
    const KvPageLayout& pages = cache.layers[0].layout;
    const Layout layout = lay_out(step);
    fill(step, pages, layout, flight);
    check_cuda(cudaMemcpyAsync(model_.memory.arrays(), flight.arrays.data(),
                               plan_arrays(layout.size).num_bytes, cudaMemcpyHostToDevice,
                               model_.stream.get()),
               "copy of a step's arrays");
    model_.memory.attention().update(model_.stream, cache.layers[0], step.batch.sequences);
    DeviceStep device_step = {.num_rows = layout.size.num_rows,
                              .num_logit_rows = layout.size.num_logit_rows,
                              .arrays = model_.memory.arrays(),
                              .activations = model_.memory.activations(),
                              .num_logit_rows_at_once = layout.size.num_logit_rows,
                              .wants_all_rows = layout.is_decode,
                              .precision = step.batch.precision.value_or(model_.host.precision),
                              .last_tokens = sampler_.last_tokens(),
                              .span = reinterpret_cast<DeviceSpan*>(results_.data()),
                              .cache = cache.layers,
                              .attention = &model_.memory.attention(),
                              .other_hidden = model_.memory.other_hidden(),
                              .ranks = model_.ranks};
    for (const BatchSequence& sequence : step.batch.sequences) {
      (sequence.num_new_tokens == 1 ? device_step.has_decodes : device_step.has_prefills) = true;
    }
    trials_.run_first(model_.context(), model_.config, model_.weights, model_.activation_dtype,
                      device_step);
    if (layout.is_decode) {
      forget_graphs_of_other_cache(cache);
      queue_decode(device_step);
    } else {
      queue(device_step);
    }
    queue_results(step, layout, flight);
  }
  end_flight(flight);
}

bool CudaStepRunner::is_ready() const {
  HALLEY_CHECK(num_waited_ < num_queued_, num_waited_);
  return flights_[static_cast<size_t>(num_waited_) % flights_.size()].is_done.is_reached();
}

const StepResult& CudaStepRunner::wait() {
  HALLEY_CHECK(num_waited_ < num_queued_, num_waited_);
  check_cuda(cudaSetDevice(model_.device.ordinal), "choice of the device");
  const InFlight& flight = flights_[static_cast<size_t>(num_waited_) % flights_.size()];
  if (model_.ranks != nullptr) model_.ranks->wait_for(flight.is_done);
  flight.is_done.synchronize();
  ++num_waited_;
  --num_in_flight_[flight.is_choice ? 1 : 0];
  result_.chosen.clear();
  for (const int32_t row : flight.record_rows) {
    result_.chosen.push_back(to_chosen_token(records_in(flight.results.data())[row]));
  }
  result_.span.reset();
  if (flight.has_span) {
    const auto& span = *reinterpret_cast<const DeviceSpan*>(flight.results.data());
    result_.span = {static_cast<double>(span.begin_ns) * 1e-3,
                    static_cast<double>(span.end_ns) * 1e-3};
  }
  result_.logits = f32_matrix(flight.logits.as<const float>().data(), flight.num_logit_rows,
                              model_.config.vocab_size);
  return result_;
}

}  // namespace halley::cuda
