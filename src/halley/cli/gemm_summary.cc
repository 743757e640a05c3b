#include "halley/cli/gemm_summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "halley/base/str.h"

namespace halley::cli {
namespace {

using Shape = std::pair<int64_t, int64_t>;  // N, K
template <typename T>
using ByRowsAndShape = std::map<int64_t, std::map<Shape, T>>;

/// The times of one shape and M.
struct Times {
  double time = 0, best = 0;
};

ByRowsAndShape<const GemmTiming*> chosen_of(std::span<const GemmTiming> gemms,
                                            std::string_view problem) {
  ByRowsAndShape<const GemmTiming*> chosen;
  for (const GemmTiming& gemm : gemms) {
    if (gemm.problem == problem && gemm.is_chosen) {
      chosen[gemm.M][{gemm.N, gemm.K}] = &gemm;
    }
  }
  return chosen;
}

/// The lowest times of cuBLASLt.
ByRowsAndShape<Times> cublaslt_times(std::span<const GemmTiming> gemms,
                                     std::span<const std::string_view> problems) {
  ByRowsAndShape<Times> lowest;
  for (const GemmTiming& gemm : gemms) {
    const bool is_asked =
        std::find(problems.begin(), problems.end(), gemm.problem) != problems.end();
    if (!is_asked || !gemm.is_cublaslt) continue;
    const auto [found, is_new] =
        lowest[gemm.M].try_emplace({gemm.N, gemm.K}, Times{.time = gemm.time, .best = gemm.best()});
    found->second.time = std::min(found->second.time, gemm.time);
    found->second.best = std::min(found->second.best, gemm.best());
  }
  return lowest;
}

/// The geometric and the arithmetic mean of values above zero.
struct Mean {
  double logs = 0, sum = 0;
  int count = 0;

  void add(double value) {
    logs += value > 0 ? std::log(value) : 0;
    sum += value;
    ++count;
  }
  double geometric() const { return std::exp(logs / count); }
  double arithmetic() const { return sum / count; }
};

ProblemMean mean_of(std::string_view problem, int64_t M,
                    const std::map<Shape, const GemmTiming*>& chosen,
                    const std::map<Shape, Times>& peers) {
  Mean over, pdl_over, peer_over, above, pdl_above;
  bool has_pdl = false;
  for (const auto& [shape, gemm] : chosen) {
    has_pdl = has_pdl || gemm->pdl_time.has_value();
    over.add(gemm->time / gemm->floor);
    pdl_over.add(gemm->best() / gemm->floor);
    above.add(gemm->time - gemm->floor);
    pdl_above.add(gemm->best() - gemm->floor);
    const auto peer = peers.find(shape);
    if (peer == peers.end()) continue;
    // With PDL the kernels that cuBLASLt needs after the GEMM are not always faster.
    peer_over.add(std::min(peer->second.time, peer->second.best) / gemm->floor);
  }
  ProblemMean mean = {.problem = std::string(problem),
                      .M = M,
                      .num_shapes = over.count,
                      .over_floor = over.geometric(),
                      .pdl_over_floor = std::nullopt,
                      .peer_over_floor = std::nullopt,
                      .above_floor = above.arithmetic(),
                      .pdl_above_floor = std::nullopt};
  if (has_pdl) {
    mean.pdl_over_floor = pdl_over.geometric();
    mean.pdl_above_floor = pdl_above.arithmetic();
  }
  if (peer_over.count == over.count) mean.peer_over_floor = peer_over.geometric();
  return mean;
}

/// The times in a ratio's denominator.
ByRowsAndShape<Times> divisors_of(std::span<const GemmTiming> gemms, const ProblemRatio& ratio) {
  if (ratio.is_over_cublaslt) return cublaslt_times(gemms, {&ratio.over, 1});
  ByRowsAndShape<Times> times;
  for (const auto& [M, shapes] : chosen_of(gemms, ratio.over)) {
    for (const auto& [shape, gemm] : shapes) {
      times[M][shape] = {.time = gemm->time, .best = gemm->best()};
    }
  }
  return times;
}

}  // namespace

std::vector<ProblemMean> means_of(std::span<const GemmTiming> gemms,
                                  std::span<const ProblemPeers> problems) {
  std::vector<ProblemMean> means;
  for (const ProblemPeers& problem : problems) {
    ByRowsAndShape<Times> peers = cublaslt_times(gemms, problem.peers);
    for (const auto& [M, chosen] : chosen_of(gemms, problem.problem)) {
      means.push_back(mean_of(problem.problem, M, chosen, peers[M]));
    }
  }
  return means;
}

std::string name_of(const ProblemRatio& ratio) {
  return str(ratio.problem, " / ", ratio.is_over_cublaslt ? "cuBLASLt " : "", ratio.over);
}

std::vector<RatioMean> ratios_of(std::span<const GemmTiming> gemms,
                                 std::span<const ProblemRatio> ratios) {
  std::vector<RatioMean> means;
  for (const ProblemRatio& ratio : ratios) {
    ByRowsAndShape<Times> divisors = divisors_of(gemms, ratio);
    for (const auto& [M, chosen] : chosen_of(gemms, ratio.problem)) {
      Mean times, pdl;
      bool has_pdl = false;
      for (const auto& [shape, gemm] : chosen) {
        const auto divisor = divisors[M].find(shape);
        if (divisor == divisors[M].end()) continue;
        has_pdl = has_pdl || gemm->pdl_time.has_value();
        times.add(gemm->time / divisor->second.time);
        pdl.add(gemm->best() / divisor->second.best);
      }
      if (times.count == 0) continue;
      means.push_back({.name = name_of(ratio),
                       .M = M,
                       .num_shapes = times.count,
                       .ratio = times.geometric(),
                       .pdl_ratio = std::nullopt});
      if (has_pdl) means.back().pdl_ratio = pdl.geometric();
    }
  }
  return means;
}

}  // namespace halley::cli
