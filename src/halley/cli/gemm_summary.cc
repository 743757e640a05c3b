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

/// Of one shape and number of rows.
struct Times {
  double time = 0, best = 0;
};

ByRowsAndShape<const TimedProduct*> chosen_of(std::span<const TimedProduct> products,
                                              std::string_view problem) {
  ByRowsAndShape<const TimedProduct*> chosen;
  for (const TimedProduct& product : products) {
    if (product.problem == problem && product.is_chosen) {
      chosen[product.M][{product.N, product.K}] = &product;
    }
  }
  return chosen;
}

/// cuBLASLt's lowest times.
ByRowsAndShape<Times> cublaslt_times(std::span<const TimedProduct> products,
                                     std::span<const std::string_view> problems) {
  ByRowsAndShape<Times> lowest;
  for (const TimedProduct& product : products) {
    const bool is_asked =
        std::find(problems.begin(), problems.end(), product.problem) != problems.end();
    if (!is_asked || !product.is_cublaslt) continue;
    const auto [found, is_new] = lowest[product.M].try_emplace(
        {product.N, product.K}, Times{.time = product.time, .best = product.best()});
    found->second.time = std::min(found->second.time, product.time);
    found->second.best = std::min(found->second.best, product.best());
  }
  return lowest;
}

/// The geometric mean of numbers above zero, beside their arithmetic one.
struct Mean {
  double logs = 0, sum = 0;
  int count = 0;

  void add(double number) {
    logs += number > 0 ? std::log(number) : 0;
    sum += number;
    ++count;
  }
  double geometric() const { return std::exp(logs / count); }
  double arithmetic() const { return sum / count; }
};

ProblemMean mean_of(std::string_view problem, int64_t M,
                    const std::map<Shape, const TimedProduct*>& chosen,
                    const std::map<Shape, Times>& peers) {
  Mean over, early_over, peer_over, above, early_above;
  bool is_early = false;
  for (const auto& [shape, product] : chosen) {
    is_early = is_early || product->early_time.has_value();
    over.add(product->time / product->floor);
    early_over.add(product->best() / product->floor);
    above.add(product->time - product->floor);
    early_above.add(product->best() - product->floor);
    const auto peer = peers.find(shape);
    if (peer == peers.end()) continue;
    // What cuBLASLt queues behind its product may start early, and need not be faster for that.
    peer_over.add(std::min(peer->second.time, peer->second.best) / product->floor);
  }
  ProblemMean mean = {.problem = std::string(problem),
                      .M = M,
                      .num_shapes = over.count,
                      .over_floor = over.geometric(),
                      .early_over_floor = std::nullopt,
                      .peer_over_floor = std::nullopt,
                      .above_floor = above.arithmetic(),
                      .early_above_floor = std::nullopt};
  if (is_early) {
    mean.early_over_floor = early_over.geometric();
    mean.early_above_floor = early_above.arithmetic();
  }
  if (peer_over.count == over.count) mean.peer_over_floor = peer_over.geometric();
  return mean;
}

/// What a ratio is over.
ByRowsAndShape<Times> divisors_of(std::span<const TimedProduct> products,
                                  const ProblemRatio& ratio) {
  if (ratio.is_over_cublaslt) return cublaslt_times(products, {&ratio.over, 1});
  ByRowsAndShape<Times> times;
  for (const auto& [M, shapes] : chosen_of(products, ratio.over)) {
    for (const auto& [shape, product] : shapes) {
      times[M][shape] = {.time = product->time, .best = product->best()};
    }
  }
  return times;
}

}  // namespace

std::vector<ProblemMean> means_of(std::span<const TimedProduct> products,
                                  std::span<const ProblemPeers> problems) {
  std::vector<ProblemMean> means;
  for (const ProblemPeers& problem : problems) {
    ByRowsAndShape<Times> peers = cublaslt_times(products, problem.peers);
    for (const auto& [M, chosen] : chosen_of(products, problem.problem)) {
      means.push_back(mean_of(problem.problem, M, chosen, peers[M]));
    }
  }
  return means;
}

std::string name_of(const ProblemRatio& ratio) {
  return str(ratio.problem, " / ", ratio.is_over_cublaslt ? "cuBLASLt " : "", ratio.over);
}

std::vector<RatioMean> ratios_of(std::span<const TimedProduct> products,
                                 std::span<const ProblemRatio> ratios) {
  std::vector<RatioMean> means;
  for (const ProblemRatio& ratio : ratios) {
    ByRowsAndShape<Times> divisors = divisors_of(products, ratio);
    for (const auto& [M, chosen] : chosen_of(products, ratio.problem)) {
      Mean times, early;
      bool is_early = false;
      for (const auto& [shape, product] : chosen) {
        const auto divisor = divisors[M].find(shape);
        if (divisor == divisors[M].end()) continue;
        is_early = is_early || product->early_time.has_value();
        times.add(product->time / divisor->second.time);
        early.add(product->best() / divisor->second.best);
      }
      if (times.count == 0) continue;
      means.push_back({.name = name_of(ratio),
                       .M = M,
                       .num_shapes = times.count,
                       .ratio = times.geometric(),
                       .early_ratio = std::nullopt});
      if (is_early) means.back().early_ratio = early.geometric();
    }
  }
  return means;
}

}  // namespace halley::cli
