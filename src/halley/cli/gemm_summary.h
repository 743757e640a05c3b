// What times of products come to: geometric means over shapes, and ratios of problems. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halley::cli {

/// One kernel's time of one product, in microseconds.
struct TimedProduct {
  std::string problem = {};
  bool is_chosen = true;     // what a layer runs
  bool is_cublaslt = false;  // by cuBLASLt, with what it needs around it
  int64_t N = 0, K = 0, M = 0;
  double time = 0;
  std::optional<double> early_time = std::nullopt;  // with early starts, where the kernel has them
  double floor = 0;

  double best() const { return early_time.value_or(time); }
};

/// A problem's products of one number of rows. The `early` members are of kernels with early
/// starts, of shapes whose kernel has none without; empty where no kernel has them.
struct ProblemMean {
  std::string problem;
  int64_t M = 0;
  int num_shapes = 0;
  double over_floor = 0;  // time by floor, geometric mean of the shapes
  std::optional<double> early_over_floor;
  /// The best of cuBLASLt's times of the peers by the same floors.
  std::optional<double> peer_over_floor;
  double above_floor = 0;  // time less floor in microseconds, arithmetic mean of the shapes
  std::optional<double> early_above_floor;
};

/// What cuBLASLt multiplies that a problem is compared with.
struct ProblemPeers {
  std::string_view problem;
  std::span<const std::string_view> peers;
};

/// For each problem, in the order of `problems`, and each number of rows, ascending. Problems and
/// numbers that were not timed are left out; peers count where all shapes have one.
std::vector<ProblemMean> means_of(std::span<const TimedProduct> products,
                                  std::span<const ProblemPeers> problems);

struct ProblemRatio {
  std::string_view problem, over;
  bool is_over_cublaslt = false;  // of its problem, whatever layers run
};

/// "u4_group_s8 / u4_s8", "nested_f16 / cuBLASLt f16".
std::string name_of(const ProblemRatio& ratio);

struct RatioMean {
  std::string name;
  int64_t M = 0;
  int num_shapes = 0;
  double ratio = 0;                   // of times, geometric mean of the shapes
  std::optional<double> early_ratio;  // of best(), where the first problem has early starts
};

/// For each ratio and each number of rows, of the shapes that have both.
std::vector<RatioMean> ratios_of(std::span<const TimedProduct> products,
                                 std::span<const ProblemRatio> ratios);

}  // namespace halley::cli
