// What `halley bench gemm` says: its JSON, its tables and its picture.
#pragma once

#include <string>
#include <vector>

#include "halley/cli/gemm_summary.h"
#include "halley/cuda/gemm/time_products.h"
#include "halley/json/json.h"

namespace halley::cli {

struct GemmSummary {
  std::vector<ProblemMean> means;
  std::vector<RatioMean> ratios;
};

/// Of the problems and ratios of gemm_problems.h.
GemmSummary summarize(const std::vector<cuda::GemmTime>& times);

/// Shares and rates are of how models run it: with early starts where the kernel has them.
OrderedJson json_of(const cuda::GemmTime& time);
OrderedJson json_of(const GemmSummary& summary);

/// The products of what the command writes. Throws InputError that names the file.
std::vector<cuda::GemmTime> products_of(const OrderedJson& json, const std::string& file);

void print_products(const std::vector<cuda::GemmTime>& times);
void print_summary(const GemmSummary& summary);

/// The lines of a table of measured plans (GemmTime::tuned) of the fastest plan of each problem,
/// shape and number of rows, as models run it.
std::vector<std::string> fastest_plans(const std::vector<cuda::GemmTime>& times);
void print_fastest_plans(const std::vector<cuda::GemmTime>& times);

/// Shares of the roofline of what layers run by number of rows, as SVG; of problems that have
/// kernels for all of them.
std::string render_shares(const GemmSummary& summary);

}  // namespace halley::cli
