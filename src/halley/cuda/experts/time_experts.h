// Times of a layer's experts on the GPU beside the least that memory and tensor cores allow.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/gemm/time_products.h"
#include "halley/cuda/grouped_gemm/grouped_shape.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

/// One layer.
struct ExpertsShape {
  std::string name;
  int64_t num_experts = 0, num_experts_per_token = 0;
  int64_t hidden_size = 0, width = 0;  // width: F of an expert
};

/// Mixtral 8x7B and Qwen3-30B-A3B.
std::vector<ExpertsShape> published_experts_shapes();

/// f16, and all quantized kinds whose outputs are in f16 here.
std::vector<GroupedKind> timed_experts_weights();

struct TimeExpertsOptions {
  /// Empty: published_experts_shapes().
  std::vector<ExpertsShape> shapes = {};
  std::vector<GroupedKind> weights = {GroupedKind::kF16};
  std::vector<int64_t> rows = {1, 4, 16, 64, 256, 2048};
  GpuRates rates = {};
};

struct ExpertsTime {
  std::string shape;
  GroupedKind weights = GroupedKind::kF16;
  int64_t M = 0;
  double num_touched = 0;                                 // experts that have rows, on average
  double microseconds = 0;                                // all of CudaExperts::run()
  double routing_microseconds = 0, sum_microseconds = 0;  // of these
  /// The larger of both, of the bytes of touched weights and of the operations.
  double floor_microseconds = 0;
};

/// Gated experts with random weights, of packed tiles in groups of 128, and a random routing that
/// changes from launch to launch; activations in f16. One captured graph runs several; median
/// of three graphs. Takes device memory for all weights of a layer, beside the workspace: 2.9 GB
/// for Mixtral 8x7B in f16. hidden_size and width are multiples of 16.
std::vector<ExpertsTime> time_experts(const CudaContext& context, CublasLtGemm& lt,
                                      const TimeExpertsOptions& options = {});

}  // namespace halley::cuda
