#include "halley/engine/mask_job.h"

#include <utility>

namespace halley {

MaskJob::MaskJob(std::shared_ptr<const CompiledConstraint> compiled)
    : compiled_(std::move(compiled)), constraint_(compiled_->start()) {}

bool MaskJob::finish(OutputState state) {
  state_ = state;
  is_done_.store(true, std::memory_order_release);
  return true;
}

bool MaskJob::begin(std::optional<int32_t> token_id, bool needs_mask) {
  is_done_.store(false, std::memory_order_relaxed);
  token_id_ = token_id;
  has_token_ = token_id.has_value();
  needs_mask_ = needs_mask;
  num_slices_.store(0, std::memory_order_relaxed);
  return run(0);
}

bool MaskJob::run(size_t num_steps) {
  if (is_cancelled_.load(std::memory_order_relaxed)) return true;
  num_slices_.fetch_add(1, std::memory_order_relaxed);
  if (token_id_) {
    const ConstraintWork work = constraint_->accept_some(*token_id_, num_steps);
    if (work == ConstraintWork::kPaused) return false;
    if (work == ConstraintWork::kOverLimit) return finish(OutputState::kNotAccepted);
    token_id_.reset();
  }
  if (has_token_ && constraint_->is_complete()) return finish(OutputState::kComplete);
  if (!needs_mask_) return finish(OutputState::kOpen);
  const ConstraintWork work = constraint_->fill_some(allowed_, num_steps);
  if (work == ConstraintWork::kPaused) return false;
  return finish(work == ConstraintWork::kDone ? OutputState::kOpen : OutputState::kNoMask);
}

}  // namespace halley
