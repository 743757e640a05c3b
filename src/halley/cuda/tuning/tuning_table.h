// Measured plans of GEMMs on one GPU: what `halley tune` writes, and planners look up.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace halley::cuda {

/// The GEMM that a plan was measured for.
struct TunedGemm {
  /// The kernel, which gives the settings their meaning: "u4_s8", "nested_f16", "w4ax".
  std::string kernel = {};
  int64_t N = 0, K = 0;
  int group_size = 0;  // of the weight, as stored; 0: the kernel's plans do not depend on it

  friend auto operator<=>(const TunedGemm&, const TunedGemm&) = default;
};

/// Names and values that a kernel's planner makes a plan of; absent ones have a default.
using PlanSettings = std::map<std::string, int64_t>;

/// The value, or `otherwise` where it is absent.
int64_t setting_of(const PlanSettings& settings, const char* name, int64_t otherwise);

/// The fastest plan that was measured for up to `rows` rows.
struct TunedPlan {
  TunedGemm gemm = {};
  int64_t rows = 0;  // M of the measurement
  PlanSettings settings = {};
  double microseconds = 0;
};

/// A table of one device. Its JSON:
///
///     {"format": "halley-tuned-plans", "version": 2, "device": "NVIDIA H200", "sms": 132,
///      "plans": [{"kernel": "u4_s8", "N": 6144, "K": 4096, "group_size": 128, "rows": 16,
///                 "plan": {"ctas_per_sm": 1, "tokens": 16}, "us": 7.25}]}
class TuningTable {
 public:
  TuningTable() = default;
  /// Sorts the plans. Two of the same GEMM and rows are an InputError.
  TuningTable(std::string device, int num_sms, std::vector<TunedPlan> plans);

  /// Throws InputError, as "<where>: plans[3]: ...", where the text is not what to_json() writes:
  /// unknown or missing members, numbers out of range. What the settings mean is the planners'
  /// affair.
  static TuningTable parse(std::string_view text, const std::string& where);
  std::string to_json() const;

  const std::string& device() const { return device_; }
  int num_sms() const { return num_sms_; }
  /// By GEMM and rows.
  const std::vector<TunedPlan>& plans() const { return plans_; }

  /// The plan of the fewest rows that are not below M, and with more than 16 not twice as many.
  /// None: null, and a planner's estimates decide.
  const TunedPlan* find(const TunedGemm& gemm, int64_t M) const;
  /// Whether it has plans of the GEMM.
  bool has(const TunedGemm& gemm) const;

  /// Adds plans, which replace those of the same GEMM and rows.
  void merge(std::vector<TunedPlan> plans);

 private:
  std::string device_;
  int num_sms_ = 0;
  std::vector<TunedPlan> plans_;
};

}  // namespace halley::cuda
