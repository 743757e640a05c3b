#include "halley/engine/engine.h"

#include <algorithm>
#include <random>
#include <utility>

#include "halley/base/check.h"
#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/philox.h"
#include "halley/engine/engine_impl.h"
#include "halley/engine/mask_threads.h"
#include "halley/engine/warm_up.h"

namespace halley {
namespace {

uint64_t random_seed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

// A thread makes this many ordinary masks while a step runs.
constexpr int64_t kNumShortJobsPerThread = 8;

ConstrainedRequests::Limits limits_of_masks(const EngineConfig& config) {
  return {.num_short_jobs = kNumShortJobsPerThread * config.num_mask_threads,
          .num_jobs = std::max<int64_t>(1, config.max_num_seqs / 2),
          .has_priority = config.scheduling_policy == SchedulingPolicy::kPriority};
}

const char* const kIsDraining = "engine: it is draining and takes no requests any more";

}  // namespace

Engine::Impl::Impl(Parts parts)
    : parts_(std::move(parts)),
      model_(*parts_.model),
      seed_(random_seed()),
      dry_breakers_(parts_.tokenizer.get()),
      ledger_(parts_.plan.config),
      scheduler_(scheduler_config(parts_.plan),
                 [this](SequenceId id) { return requests_.at(id)->request.tokens(); }),
      planner_(
          scheduler_,
          {.itl_target = parts_.plan.config.itl_target,
           .levels = model_.precision_levels(*parts_.plan.config.kv_dtype),
           .mode = parts_.plan.config.precision},
          [this](SequenceId id) -> const PrecisionDemand& { return requests_.at(id)->demand; }),
      cache_(parts_.plan.layout, model_, parts_.plan.num_pages),
      pipeline_(model_, cache_, parts_.plan.config.max_num_seqs),
      masks_(parts_.masks != nullptr ? std::move(parts_.masks) : make_mask_threads()),
      constrained_(*masks_, limits_of_masks(config())) {
  // Requests of a fixed precision need no prediction.
  if (config().precision == PrecisionMode::kAuto) {
    warm_up(pipeline_.runner(), cache_.view(),
            {.num_pages = parts_.plan.num_pages,
             .page_tokens = config().page_tokens,
             .num_sequences = config().max_num_seqs,
             .num_prefill_rows = std::min(config().max_num_batched_tokens, config().max_model_len),
             .has_graphs = !pipeline_.is_synchronous()},
            parts_.clock, planner_);
  }
  publish();
  thread_ = std::thread([this] { run(); });
}

std::unique_ptr<MaskExecutor> Engine::Impl::make_mask_threads() {
  return std::make_unique<MaskThreads>(static_cast<int>(config().num_mask_threads), [this] {
    {
      const std::lock_guard lock(mutex_);
      has_mask_ = true;
    }
    wake_.notify_one();
  });
}

void Engine::Impl::stop() {
  HALLEY_CHECK(std::this_thread::get_id() != thread_.get_id());  // ended by its own callback
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    ledger_.stop(kIsEnding);
  }
  wake_.notify_one();
  thread_.join();
}

SubmitResult Engine::Impl::why_invalid(const GenerateRequest& request,
                                       const TokenCallback& on_token) const {
  try {
    check_request(request, model_.shape().vocab_size, parts_.tokenizer != nullptr);
    check_pooling(request, model_.shape());
    check_adapter(request, model_);
  } catch (const InputError& error) {
    return {Submit::kInvalid, error.what()};
  }
  if (request.precision == PrecisionMode::kLow && !planner_.precision().has_choice()) {
    return {Submit::kInvalid,
            "precision: expected full or auto, since the model has one precision, "
            "got low"};
  }
  if (!request.pooling && needs_host_sampler(request.sampling) && !pipeline_.samples_on_host()) {
    return {Submit::kInvalid,
            str(has_dry(request.sampling) ? "dry_multiplier" : "xtc_probability",
                ": expected 0, since the model's device chooses tokens, and its sampler has no DRY "
                "and no XTC, got ",
                has_dry(request.sampling) ? request.sampling.dry_multiplier
                                          : request.sampling.xtc_probability,
                ". Leave it out, or serve the model on the CPU.")};
  }
  if (!on_token) return {Submit::kInvalid, "on_token: expected a callback, got none"};
  return {};
}

// Throws what DryBreakerCache::get() throws.
std::shared_ptr<const DryBreakers> Engine::Impl::dry_breakers_of(const GenerateRequest& request) {
  if (request.pooling || !has_dry(request.sampling)) return nullptr;
  return dry_breakers_.get(request.sampling.dry_sequence_breakers);
}

// Fills in the engine's own for all that the request leaves out.
PrecisionDemand Engine::Impl::demand_of(const GenerateRequest& request) const {
  const EngineConfig& defaults = config();
  PrecisionDemand demand = {.mode = request.precision.value_or(defaults.precision),
                            .slo = request.slo,
                            .submitted = parts_.clock()};
  if (!demand.slo.ttft) demand.slo.ttft = defaults.slo.ttft;
  if (!demand.slo.tpot) demand.slo.tpot = defaults.slo.tpot;
  return demand;
}

SubmitResult Engine::Impl::submit(GenerateRequest request, RequestId id, TokenCallback on_token) {
  SubmitResult rejection = why_invalid(request, on_token);
  if (rejection.status != Submit::kQueued) return rejection;
  std::shared_ptr<const DryBreakers> dry_breakers;
  try {
    dry_breakers = dry_breakers_of(request);
  } catch (const Error& error) {
    return {Submit::kInvalid, error.what()};
  }
  const auto num_prompt_tokens = static_cast<int64_t>(request.prompt_ids.size());
  const SequenceId sequence_id = num_submits_++;
  const RequestContext context = {.tokenizer = parts_.tokenizer.get(),
                                  .eos_token_ids = parts_.eos_token_ids,
                                  .max_model_len = config().max_model_len,
                                  .seed = random_bits(seed_, sequence_id),
                                  .dry_breakers = std::move(dry_breakers)};
  const LiveRequest::Ids ids = {.request = id, .sequence = sequence_id};
  const PrecisionDemand demand = demand_of(request);
  auto live =
      std::make_unique<LiveRequest>(std::move(request), ids, std::move(on_token), context, demand);
  {
    const std::lock_guard lock(mutex_);
    if (!ledger_.is_stopped() && ledger_.is_live(id)) {
      return {Submit::kInvalid, str("id: expected one that is not in use, got ", id)};
    }
    rejection = ledger_.why_rejected(num_prompt_tokens);
    if (rejection.status != Submit::kQueued) return rejection;
    ledger_.add(id, num_prompt_tokens);
    commands_.push_back({id, std::move(live)});
    count_waiting();
  }
  wake_.notify_one();
  return {};
}

void Engine::Impl::cancel(RequestId id) {
  {
    const std::lock_guard lock(mutex_);
    if (!ledger_.is_live(id)) return;
    commands_.push_back({id, nullptr});
  }
  wake_.notify_one();
}

SubmitResult Engine::Impl::would_admit(int64_t num_prompt_tokens) const {
  const std::lock_guard lock(mutex_);
  return ledger_.why_rejected(std::max(num_prompt_tokens, int64_t{1}));
}

void Engine::Impl::drain(TimePoint limit) {
  const std::lock_guard lock(mutex_);
  if (!ledger_.is_stopped()) ledger_.stop(kIsDraining);
  drain_limit_ = limit;  // the thread checks it before each step; without requests it sleeps
}

void Engine::Impl::wait_until_idle() const {
  HALLEY_CHECK(std::this_thread::get_id() != thread_.get_id());
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return is_idle_ && ledger_.num_live() == 0; });
}

EngineStats Engine::Impl::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

// Copies the ledger's counts into the statistics, so that a submit shows at once. Called under the
// lock.
void Engine::Impl::count_waiting() {
  stats_.num_waiting = ledger_.num_live() - stats_.num_running;
  stats_.num_queued = ledger_.num_queued();
  stats_.num_queued_tokens = ledger_.num_queued_tokens();
}

// Called under the lock.
void Engine::Impl::publish() {
  stats_ = totals_;
  stats_.num_running = scheduler_.num_running();
  stats_.num_pages = scheduler_.pages().num_pages();
  stats_.num_free_pages = scheduler_.pages().num_free();
  stats_.num_cached_pages = scheduler_.pages().num_cached();
  stats_.num_prefix_queries = scheduler_.num_prefix_queries();
  stats_.num_prefix_hits = scheduler_.num_prefix_hits();
  stats_.itl_target_seconds = planner_.prefill_limit().target_seconds();
  stats_.num_prefill_rows_max = planner_.prefill_limit().num_rows_last();
  stats_.precision = planner_.precision().stats();
  count_waiting();
}

// Copies the counts that a token changes; a plan publishes all. Called under the lock.
void Engine::Impl::publish_tokens() {
  stats_.num_prompt_tokens = totals_.num_prompt_tokens;
  stats_.num_cached_prompt_tokens = totals_.num_cached_prompt_tokens;
  stats_.num_output_tokens = totals_.num_output_tokens;
  const std::vector<LevelStats>& levels = planner_.precision().stats().levels;
  for (size_t i = 0; i < levels.size(); ++i) {
    stats_.precision.levels[i].num_tokens = levels[i].num_tokens;
  }
}

Engine::Engine(std::unique_ptr<CausalLm> model, std::shared_ptr<const Tokenizer> tokenizer,
               std::vector<int32_t> eos_token_ids, const EngineConfig& config, EngineClock clock,
               std::unique_ptr<MaskExecutor> masks) {
  HALLEY_CHECK(model != nullptr);
  check_eos_token_ids(eos_token_ids, model->shape().vocab_size);
  EnginePlan plan = prepare_engine(*model, config);
  if (!clock) clock = [] { return std::chrono::steady_clock::now(); };
  impl_ = std::make_unique<Impl>(Impl::Parts{.model = std::move(model),
                                             .tokenizer = std::move(tokenizer),
                                             .eos_token_ids = std::move(eos_token_ids),
                                             .plan = std::move(plan),
                                             .clock = std::move(clock),
                                             .masks = std::move(masks)});
}

Engine::~Engine() { impl_->stop(); }

SubmitResult Engine::submit(GenerateRequest request, RequestId id,
                            TokenCallback on_token) noexcept {
  return impl_->submit(std::move(request), id, std::move(on_token));
}

void Engine::cancel(RequestId id) noexcept { impl_->cancel(id); }

SubmitResult Engine::would_admit(int64_t num_prompt_tokens) const noexcept {
  return impl_->would_admit(num_prompt_tokens);
}

void Engine::drain(TimePoint limit) noexcept { impl_->drain(limit); }

void Engine::wait_until_idle() const { impl_->wait_until_idle(); }

EngineStats Engine::stats() const { return impl_->stats(); }

const EngineConfig& Engine::config() const { return impl_->config(); }

int64_t Engine::hidden_size() const { return impl_->hidden_size(); }

}  // namespace halley
