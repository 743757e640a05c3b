#include "halley/engine/host_slot.h"

#include "halley/base/check.h"

namespace halley {

HostSlot::HostSlot(const TokenChoice& choice, std::span<const int32_t> prompt_ids,
                   std::span<const int32_t> output_ids)
    : sampler_(choice, prompt_ids) {
  for (const int32_t id : output_ids) sampler_.record(id);
}

int32_t HostSlot::last_token() const {
  HALLEY_CHECK(last_token_.has_value());
  return *last_token_;
}

ChosenToken HostSlot::sample(std::span<const float> logits, SamplerScratch& scratch,
                             const TokenMask* allowed) {
  ChosenToken chosen;
  chosen.status = sampler_.sample(logits, scratch, chosen.token, allowed);
  // A step that is planned already needs some id, even if nothing was chosen.
  last_token_ = chosen.status == SampleStatus::kChosen ? chosen.token.token_id : 0;
  return chosen;
}

ChosenToken HostSlot::choose(std::span<const float> logits, SamplerScratch& scratch) {
  return sample(logits, scratch, nullptr);
}

void HostSlot::defer(std::span<const float> logits) {
  deferred_.assign(logits.begin(), logits.end());
  has_deferred_ = true;
}

ChosenToken HostSlot::choose_deferred(const TokenMask& allowed, SamplerScratch& scratch) {
  HALLEY_CHECK(has_deferred_);
  has_deferred_ = false;
  return sample(deferred_, scratch, &allowed);
}

}  // namespace halley
