// Chooses the token of one row with a cluster of CTAs, step by step as the CPU's sampler
// (sampling/base/sampler.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "halley/core/philox.h"
#include "halley/sampling/base/token_choice.h"
#include "halley/sampling/cuda/choice_record.h"
#include "halley/sampling/cuda/device_code.h"
#include "halley/sampling/cuda/row_selection.h"
#include "halley/sampling/cuda/row_team.h"
#include "halley/sampling/cuda/slot_state.h"
#include "halley/sampling/cuda/token_score.h"

namespace halley::cuda {

template <class Machine>
class RowChooser {
 public:
  /// `allowed`: a bit for each token that may be chosen; null: all.
  HALLEY_DEVICE RowChooser(RowTeam<Machine>& team, const SlotView& slot,
                           const uint32_t* allowed = nullptr)
      : team_(team),
        slot_(slot),
        state_(slot.image->state),
        rule_(score_rule(slot)),
        allowed_(allowed) {}

  /// All threads of the row call this once. The slot and the record are written by the first one,
  /// when no thread reads them any more.
  HALLEY_DEVICE void choose(ChoiceRecord& record) {
    if (team_.thread() == 0) team_.shared().num_listed = 0;
    find_best();
    if (best_.is_broken || best_.id == INT32_MAX) {
      if (team_.is_first()) {
        record.status = static_cast<int32_t>(best_.is_broken ? SampleStatus::kNotFinite
                                                             : SampleStatus::kNothingLeft);
      }
      return;
    }
    const int32_t token = params().temperature == 0 ? best_.id : drawn();
    const int num_top = state_.num_logprobs;
    if (num_top >= 0) write_logprobs(token, num_top, record);
    if (!team_.is_first()) return;
    record.token_id = token;
    record.status = static_cast<int32_t>(SampleStatus::kChosen);
    if (num_top < 0) record.num_top = -1;
    remember(token);
  }

 private:
  using Team = RowTeam<Machine>;

  HALLEY_DEVICE const ChoiceParams& params() const { return state_.params; }

  HALLEY_DEVICE const uint32_t* marks() const { return rule_.is_adjusted ? slot_.marks : nullptr; }

  HALLEY_DEVICE double score_of(int32_t id, float logit, bool is_marked) const {
    if (allowed_ != nullptr && ((allowed_[id / 32] >> (id % 32)) & 1) == 0) return -INFINITY;
    return is_marked ? adjusted_score(rule_, id, logit) : double{logit};
  }

  HALLEY_DEVICE void find_best() {
    float logit_max = -INFINITY;
    int32_t logit_id = INT32_MAX;
    bool is_broken = false;
    RowBest best = {-INFINITY, INT32_MAX, 0, false};
    const auto see_logit = [&](int32_t id, float logit) {
      is_broken = is_broken || !(logit < INFINITY);
      if (logit > logit_max) {
        logit_max = logit;
        logit_id = id;
      }
    };
    if (rule_.is_adjusted || allowed_ != nullptr) {
      team_.for_ids(marks(), [&](int32_t id, float logit, bool is_marked) {
        see_logit(id, logit);
        const double score = score_of(id, logit, is_marked);
        if (score > best.score) {
          best.score = score;
          best.id = id;
        }
      });
    } else {
      team_.for_logits(see_logit);
      best.score = logit_max;
      best.id = logit_id;
    }
    best.logit = logit_max;
    best.is_broken = is_broken;
    best_ = team_.reduce(best, typename Team::Better{});
  }

  HALLEY_DEVICE int32_t drawn() {
    const ScoreScale scale = score_scale(best_.score, params().temperature);
    Threshold kept;
    const WeightLimit limit = weight_limit(params());
    // Whether the token may be drawn: its weight is above 0 and within the limit, and the token was
    // kept so far.
    const auto is_candidate = [&](int32_t id, float logit, bool is_marked, double& score,
                                  double& position) {
      score = score_of(id, logit, is_marked);
      if (!passes(kept, score, id)) return false;
      position = position_of(scale, score);
      return allows(limit, scale, score, position);
    };
    const auto select = [&](const Demand& demand) {
      RowSelection<Machine, decltype(is_candidate)> selection(team_, marks(), scale, demand,
                                                              is_candidate);
      kept = both(kept, selection.find());
    };
    if (params().top_k > 0 && params().top_k < team_.vocab_size()) {
      select({.is_of_weight = false, .count = static_cast<int32_t>(params().top_k)});
    }
    if (params().top_p < 1) select({.is_of_weight = true, .part = params().top_p});
    const auto weight = [&](int32_t id, float logit, bool is_marked) {
      double score = 0, position = 0;
      const bool may_be_drawn = is_candidate(id, logit, is_marked, score, position);
      return may_be_drawn ? exp(-position * kBinDepth) : 0.0;
    };
    const double uniform =
        random_uniform(state_.seed, static_cast<uint64_t>(state_.num_output_tokens));
    return find_by_sum(team_, marks(), weight, [&](double total) { return uniform * total; });
  }

  HALLEY_DEVICE void write_logprobs(int32_t token, int num_top, ChoiceRecord& record) {
    double sum = 0;
    float token_logit = 0;
    team_.for_ids(nullptr, [&](int32_t id, float logit, bool) {
      sum += exp(double{logit} - double{best_.logit});
      if (id == token) token_logit = logit;
    });
    sum = team_.reduce(sum, typename Team::Sum{});
    // One thread has the token's logit; as a sum with zeros it reaches all.
    const double logit = team_.reduce(double{token_logit}, typename Team::Sum{});
    const double normalizer = double{best_.logit} + log(sum);
    if (team_.is_first()) {
      record.logprob = static_cast<float>(logit - normalizer);
      record.num_top = num_top < team_.vocab_size() ? num_top : team_.vocab_size();
    }
    if (num_top > 0) write_top(num_top, normalizer, record);
  }

  HALLEY_DEVICE void write_top(int num_top, double normalizer, ChoiceRecord& record) {
    const ScoreScale scale = score_scale(best_.logit, 1);
    const auto is_candidate = [&](int32_t, float logit, bool, double& score, double& position) {
      score = double{logit};
      position = position_of(scale, score);
      return true;
    };
    RowSelection<Machine, decltype(is_candidate)> selection(
        team_, nullptr, scale, {.is_of_weight = false, .count = num_top}, is_candidate);
    const Threshold threshold = selection.find();
    auto& list = team_.machine().shared(0);
    team_.for_ids(nullptr, [&](int32_t id, float logit, bool) {
      if (!passes(threshold, double{logit}, id)) return;
      const uint32_t index = team_.machine().add(list.num_listed, 1);
      if (index >= TokenChoice::kNumLogprobsMax) return;  // never: there are num_top
      list.listed_ids[index] = id;
      list.listed_logits[index] = logit;
    });
    team_.machine().sync_row();
    if (team_.cta_rank() != 0) return;
    const auto count = static_cast<int>(list.num_listed);
    if (team_.thread() >= count) return;
    const int32_t id = list.listed_ids[team_.thread()];
    const float logit = list.listed_logits[team_.thread()];
    int index = 0;
    for (int i = 0; i < count; ++i) {
      const float other = list.listed_logits[i];
      if (other > logit || (other == logit && list.listed_ids[i] < id)) ++index;
    }
    record.top_ids[static_cast<size_t>(index)] = id;
    record.top_logprobs[static_cast<size_t>(index)] =
        static_cast<float>(double{logit} - normalizer);
  }

  HALLEY_DEVICE void remember(int32_t token) const {
    *slot_.last_token = token;
    slot_.image->state.num_output_tokens = state_.num_output_tokens + 1;
    if (!has_penalty(params())) return;
    ++slot_.words[token];
    slot_.marks[token / 32] |= uint32_t{1} << (token % 32);
  }

  Team& team_;
  SlotView slot_;
  const SlotState& state_;  // as it is before the choice, until remember()
  ScoreRule rule_;
  const uint32_t* allowed_;
  RowBest best_;
};

}  // namespace halley::cuda
