// Summarises times of GEMMs: geometric means over shapes, and ratios of problems. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace halley::cli {

/// The time of one kernel for one GEMM, in microseconds.
struct GemmTiming {
  std::string problem = {};
  bool is_chosen = true;     // a layer runs this kernel
  bool is_cublaslt = false;  // by cuBLASLt, with the kernels that it needs before and after
  int64_t N = 0, K = 0, M = 0;
  double time = 0;
  std::optional<double> pdl_time = std::nullopt;  // with PDL, where the kernel supports it
  double floor = 0;

  double best() const { return pdl_time.value_or(time); }
};

/// The mean over a problem's GEMMs with the same M. The `pdl` members are for launches with
/// programmatic dependent launch (PDL); shapes whose kernel does not support it count without. They
/// are empty if no kernel supports it.
struct ProblemMean {
  std::string problem;
  int64_t M = 0;
  int num_shapes = 0;
  double over_floor = 0;  // time / floor, geometric mean of the shapes
  std::optional<double> pdl_over_floor;
  /// cuBLASLt's best time among the peers, over the same floors.
  std::optional<double> peer_over_floor;
  double above_floor = 0;  // time - floor in microseconds, arithmetic mean of the shapes
  std::optional<double> pdl_above_floor;
};

/// The GEMMs of cuBLASLt that a problem is compared with.
struct ProblemPeers {
  std::string_view problem;
  std::span<const std::string_view> peers;
};

/// One mean for each problem, in the order of `problems`, and each M, ascending. Problems and M
/// that were not timed are left out; peers count where all shapes have one.
std::vector<ProblemMean> means_of(std::span<const GemmTiming> gemms,
                                  std::span<const ProblemPeers> problems);

struct ProblemRatio {
  std::string_view problem, over;
  bool is_over_cublaslt = false;  // `over` is a problem that cuBLASLt runs
};

/// "u4_group_s8 / u4_s8", "nested_f16 / cuBLASLt f16".
std::string name_of(const ProblemRatio& ratio);

struct RatioMean {
  std::string name;
  int64_t M = 0;
  int num_shapes = 0;
  double ratio = 0;                 // geometric mean over the shapes
  std::optional<double> pdl_ratio;  // of best(), where the first problem's kernel supports PDL
};

/// One mean for each ratio and each M, over the shapes that have both.
std::vector<RatioMean> ratios_of(std::span<const GemmTiming> gemms,
                                 std::span<const ProblemRatio> ratios);

}  // namespace halley::cli
