// How much longer steps take than their roofline time, as measured: by the precision of the weights
// and the rows of a step.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halley {

/// A measured step: its time over its roofline time.
struct RatioPoint {
  int64_t num_rows = 0;
  double ratio = 0;
};

/// The ratios of one precision. Small steps are decodes, large ones prefills: a step
/// with both has the ratio of its sum of rows.
class StepRatio {
 public:
  /// At least one point, by ascending rows.
  explicit StepRatio(std::vector<RatioPoint> points);

  /// Linear in the logarithm of the rows between two points, and constant beyond the last ones.
  double at(int64_t num_rows) const;

 private:
  std::vector<RatioPoint> points_;
};

/// The ratios of all precisions that were measured.
class RatioTable {
 public:
  /// Measured on an NVIDIA H200, from files of bench/results.
  static RatioTable built_in();

  /// Reads
  ///   {"ratios": [{"precision": "f16", "rows": 1, "ratio": 1.23}, ...]}
  /// in any order; a further member "source" of an entry is a text, and ignored. Rows from 1 to
  /// 2^20, ratios above 0 and at most 1000; rows at most once a precision; at most 10,000 entries.
  /// Throws InputError that names the entry.
  static RatioTable parse(std::string_view text, const std::string& where);

  /// Throws InputError that lists the precisions there are.
  const StepRatio& of(const std::string& precision) const;

 private:
  using Points = std::map<std::string, std::map<int64_t, double>>;
  RatioTable(const Points& points, std::string where);

  std::map<std::string, StepRatio> ratios_;
  std::string where_;
};

/// A number of the built-in table.
struct MeasuredRatio {
  const char* precision;
  int64_t num_rows;
  double ratio;
  const char* file;  // in bench/results
  bool is_prefill;   // of the file's prefill steps; else of its decode steps
};
std::span<const MeasuredRatio> measured_ratios();

}  // namespace halley
