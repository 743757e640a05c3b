// The weights of a decoder in GPU memory, and their loading.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "halley/core/dtype.h"
#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/cuda/experts/cuda_experts.h"
#include "halley/cuda/gemm/cublaslt_gemm.h"
#include "halley/cuda/ops/join_columns.h"
#include "halley/cuda/ops/norm.h"
#include "halley/cuda/ops/rope_kv.h"
#include "halley/cuda/runtime/cuda_context.h"
#include "halley/cuda/runtime/device_arena.h"
#include "halley/cuda/weights/cuda_linear.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/decoder_weights.h"
#include "halley/quant/base/linear_loader.h"

namespace halley::cuda {

struct CudaLayerWeights {
  std::optional<NormParams> input_norm, mlp_norm;  // absent as in LayerSpec
  std::optional<NormParams> attention_out_norm, mlp_out_norm;
  const float* q_norm = nullptr;  // [q_norm_size()], or null
  const float* k_norm = nullptr;
  CudaLinear qkv, o;
  CudaLinear gate_up, down;  // only of layers without experts
  /// Set where several ranks divide the layer and it picks its inputs from those of all of them.
  std::optional<ColumnShares> o_inputs, down_inputs;
  std::optional<CudaLinear> router;
  std::optional<CudaExperts> experts;
};

/// Move-only; one thread at a time.
struct CudaDecoderWeights {
  /// [V, K]; absent where it is tied to `output`, which holds the one copy, and behind the first
  /// stage.
  std::optional<CudaLinear::Section> embedding;
  /// [num_stored_positions + position_offset, K]
  std::optional<CudaLinear::Section> positions;
  std::vector<CudaLayerWeights> layers;
  NormParams final_norm;
  CudaLinear output;  // of the last stage, and of the first where it is tied
  bool is_output_tied = false;
  ColumnShares vocabulary;       // of several ranks
  std::vector<RopeTable> ropes;  // as DecoderConfig::ropes
  DeviceBuffer small;            // norms and frequencies

  ConstMatrix embedding_table() const {
    const CudaLinear::Section& section = embedding ? *embedding : output.sections()[0];
    return section.weight->rows()->w();
  }
  struct PlacedLinear {
    const CudaLinear* linear = nullptr;
    /// The name of the grouped GEMM in which an expert runs with the others (cuda_experts.h).
    std::string grouped_kernel = {};
  };
  /// Linear layers that run as GEMMs, in the order of list_decoder_parts(): a tied output first.
  std::vector<PlacedLinear> linears() const;
  size_t device_bytes() const;
  /// Whether CUDA graphs can capture a step's operations.
  bool is_capturable() const;
};

/// Empty if the GPU's operations support this decoder with activations of this type, else the
/// reason: "head_dim 80 ...".
std::string why_not_on_gpu(const DecoderConfig& config, DType activation_dtype);

/// Source and destination of the weights. All must outlive the loading; `lt` also the weights.
struct CudaLoading {
  ExecContext& host;
  const CudaContext& device;
  CublasLtGemm& lt;
  DType activation_dtype = DType::kF16;  // f16 or bf16
};

/// Loads the weights one by one, and waits until all are in device memory. Throws as
/// CudaWeightLoader::load(), and CheckpointError as load_decoder_weights().
CudaDecoderWeights load_cuda_weights(const CudaLoading& target, const DecoderConfig& config,
                                     const LinearLoading& loading, const PartLoaded& on_part);

}  // namespace halley::cuda
