// The output of `halley bench gemm`: JSON, tables and an SVG plot.
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

/// Summarises the problems and ratios of gemm_problems.h.
GemmSummary summarize(const std::vector<cuda::GemmTime>& times);

/// Shares and rates count the launch that models use: with PDL where the kernel supports it.
OrderedJson json_of(const cuda::GemmTime& time);
OrderedJson json_of(const GemmSummary& summary);

/// Reads the GEMMs from the JSON that the command writes. Throws InputError that names the file.
std::vector<cuda::GemmTime> gemms_of(const OrderedJson& json, const std::string& file);

void print_gemms(const std::vector<cuda::GemmTime>& times);
void print_summary(const GemmSummary& summary);

/// Plots the share of the roofline over M for the kernels that layers run, as SVG. Only problems
/// with kernels for every M have a line.
std::string render_shares(const GemmSummary& summary);

}  // namespace halley::cli
