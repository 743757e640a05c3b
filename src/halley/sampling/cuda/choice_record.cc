#include "halley/sampling/cuda/choice_record.h"

#include "halley/base/check.h"

namespace halley::cuda {

ChosenToken to_chosen_token(const ChoiceRecord& record) {
  ChosenToken chosen;
  chosen.status = static_cast<SampleStatus>(record.status);
  if (chosen.status != SampleStatus::kChosen) return chosen;
  chosen.token.token_id = record.token_id;
  if (record.num_top < 0) return chosen;
  HALLEY_CHECK(record.num_top <= TokenChoice::kNumLogprobsMax, record.num_top);
  chosen.token.logprob = {record.token_id, record.logprob};
  for (size_t i = 0; i < static_cast<size_t>(record.num_top); ++i) {
    chosen.token.top_logprobs.push_back({record.top_ids[i], record.top_logprobs[i]});
  }
  return chosen;
}

}  // namespace halley::cuda
