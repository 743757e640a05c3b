// Measured plans for products of 4-bit weights: what `halley tune` writes and models run with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "halley/cuda/mixed_gemm/mixed_plan.h"

namespace halley::cuda {

/// The best plan that was measured for up to `rows` rows of one layer.
struct TunedMixedPlan {
  MixedKind kind = MixedKind::kU4S8;
  int64_t N = 0, K = 0;
  int group_size = kChunkInputs;  // as stored
  int64_t rows = 0;               // M of the measurement
  bool is_narrow = false;
  MixedTiling tiling = {};  // of tiles
  double microseconds = 0;
};

/// A table of one device. Its JSON:
///
///     {"format": "halley-tuned-plans", "version": 1, "device": "NVIDIA H200",
///      "multiprocessors": 132,
///      "plans": [{"kind": "u4_s8", "N": 6144, "K": 4096, "group_size": 128, "rows": 16,
///                 "tokens": 16, "outputs": 128, "blocks_a_tile": 2,
///                 "blocks_a_multiprocessor": 1, "us": 7.25},
///                {"kind": "u4_s8", "N": 6144, "K": 4096, "group_size": 128, "rows": 4,
///                 "is_narrow": true, "us": 5.5}]}
///
/// Beside "blocks_a_multiprocessor", "shares_last_tiles" (a bool) may stand; it is false without.
class TunedMixedPlans {
 public:
  TunedMixedPlans() = default;
  /// Sorts them. Two of the same layer and rows are an InputError.
  TunedMixedPlans(std::string device, int num_sms, std::vector<TunedMixedPlan> plans);

  /// Throws InputError, as "<where>: plans[3]: ...", where the text is not what to_json() writes:
  /// unknown or missing members, numbers out of range, tiles that are not compiled or cannot be.
  static TunedMixedPlans parse(std::string_view text, const std::string& where);
  std::string to_json() const;

  const std::string& device() const { return device_; }
  int num_sms() const { return num_sms_; }
  const std::vector<TunedMixedPlan>& plans() const { return plans_; }
  /// Whether its plans hold for such a device: the plans depend on its SMs.
  bool is_of(const MixedDevice& device) const { return num_sms_ == device.num_sms; }

  /// That of the fewest rows that are not below M, and with more than 16 not twice as many. None:
  /// null, and a rule chooses.
  const TunedMixedPlan* find(const MixedShape& shape) const;

 private:
  std::string device_;
  int num_sms_ = 0;
  std::vector<TunedMixedPlan> plans_;
};

/// Those of whole layers were measured on an H200, those of ranks' parts on H100s.
const TunedMixedPlans& built_in_tuned_plans();
/// What plan_mixed_gemm() looks up in: the built-in ones unless others were set.
const TunedMixedPlans& tuned_mixed_plans();
/// For the whole process; before the first model is loaded.
void set_tuned_mixed_plans(TunedMixedPlans plans);

}  // namespace halley::cuda
