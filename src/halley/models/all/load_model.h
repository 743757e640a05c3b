// From a model's directory, or a built-in shape, to a model that runs.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halley/checkpoint/config/hf_config.h"
#include "halley/checkpoint/safetensors/tensor_source.h"
#include "halley/models/base/causal_lm.h"
#include "halley/models/base/decoder_config.h"
#include "halley/models/base/stage_exchange.h"
#include "halley/parallel/base/communicator.h"
#include "halley/quant/all/formats.h"
#include "halley/quant/base/linear_loader.h"

namespace halley {

/// Maps config.json to a decoder by `model_type`. Throws UnsupportedError that names an unknown
/// family or an option that is not supported, and lists the families that are.
/// This overload assumes the tensor names of published checkpoints and the type that config.json
/// declares.
DecoderConfig read_decoder_config(const HfConfig& config);

/// The same for the tensors at hand (experts fused or one by one; the type of the weights), with
/// the longest sequence that will be run, which `dynamic` and `longrope` rotary embeddings depend
/// on (rope_scaling.h). max_length 0: max_position_embeddings. Throws InputError where it is longer
/// than the model can do.
DecoderConfig read_decoder_config(const HfConfig& config, const TensorSource& source,
                                  int64_t max_length);

/// config.json text of a built-in shape ("llama-1b", "llama-3-8b", ...), for dummy weights. Throws
/// InputError that lists the known names.
HfConfig builtin_config(const std::string& name);
std::vector<std::string> builtin_config_names();

/// All tensors that a full-precision checkpoint of this decoder holds, for dummy weights.
std::vector<TensorInfo> list_dense_tensors(const DecoderConfig& config);
/// The same for a checkpoint in the declared format.
std::vector<TensorInfo> list_quantized_tensors(const DecoderConfig& config,
                                               const QuantConfig& quant);

/// Some consecutive outputs of a linear layer on a GPU.
struct GpuLinearPlan {
  std::string name;
  int64_t out_features = 0, in_features = 0;
  std::string form;             // the stored format and the device layout
  std::string kernel;           // for outputs in the activations' type
  std::string low_kernel = {};  // the same in low precision (core/precision.h); "": there is none
  /// The kernel of the kernel library for compute capability 8.0 to 8.9, or "": models run on 9.0.
  std::string mma_kernel = {};
  size_t device_bytes = 0;
  /// Preferred kernels that were passed over, each with its reason.
  std::vector<std::string> rejections;
};

/// One part of the model, of one or more packed weights.
struct ModelPart {
  std::string name;  // "embedding", "layers.0.qkv", ...
  std::string kind;  // "embedding", "norm", "linear"
  std::vector<LinearPlan> plans;
  /// On a GPU, for parts that run a GEMM; `plans` then describe how they are stored. Once the model
  /// is loaded, these are the kernels that it runs.
  std::vector<GpuLinearPlan> gpu_plans;
};

/// The layouts and kernels of a model, planned from headers alone. Throws as load_model().
struct ModelPlan {
  DecoderConfig config;
  std::string format;   // of the checkpoint
  std::string summary;  // the format's parameters in words
  std::string device = "cpu";
  DType activation_dtype = DType::kF32;  // between operations
  std::vector<ModelPart> parts;
  std::vector<std::string> warnings;
  /// On a GPU, once loaded: the file or the cache of measured plans, and what was measured.
  std::string tuned_plans = {};
  size_t stored_bytes = 0;        // all tensors of the source
  size_t packed_bytes = 0;        // of the weights as they will be loaded
  size_t f16_bytes = 0;           // of the same weights in 16 bits
  size_t kv_bytes_per_token = 0;  // at the default cache type
};

/// How a model is loaded.
struct LoadOptions {
  /// Absent: as config.json alone declares.
  std::optional<QuantConfig> quant;
  std::vector<QuantOverride> overrides;
  KernelDemands kernels;
  bool has_self_check = true;
  /// The longest sequence that will be run; 0: max_position_embeddings.
  int64_t max_length = 0;
  std::string device = "cpu";  // or "cuda"
  int gpu_ordinal = 0;
  /// Part of the GPU's memory that the process may use, (0, 1].
  double gpu_memory_utilization = 0.9;
  /// On a GPU: a row's logits do not depend on the other rows of the batch. On the CPU they never
  /// do.
  bool is_batch_invariant = false;
  /// On a GPU: a file of measured plans of GEMMs (halley tune); "": this GPU's cache, if there is
  /// one.
  std::string tuned_plans = {};
  /// On a GPU: measures plans of the model's GEMMs that have none, and keeps them in the cache.
  bool tune = false;
  /// The part that is planned or loaded of a model that several ranks run together. On GPUs each
  /// rank has its own.
  RankShare share = {};
  /// To load: this rank's ends of what connects it with the others, which must outlive the model.
  Communicator* ranks = nullptr;    // null: one rank
  StageExchange* stages = nullptr;  // null: one stage
  /// On a GPU, f16 or bf16; absent: the checkpoint's type, f16 where that is f32.
  std::optional<DType> activation_dtype = std::nullopt;
};

/// Empty: this GPU can be used, or there are GPUs and none of this number, which load_model()
/// rejects. Otherwise the reason: the program was built without CUDA, no driver, no GPU, another
/// compute capability than 9.0; with advice.
std::string why_no_gpu(int ordinal);
/// Whether this program has code for GPUs.
bool is_built_with_cuda();

ModelPlan plan_model(const HfConfig& config, const TensorSource& source,
                     const LoadOptions& options = {});

/// `progress(done, total)` in bytes of packed weights; may be empty.
using LoadProgress = std::function<void(size_t done, size_t total)>;

/// A model that can run, with its plan.
struct LoadedDecoder {
  std::unique_ptr<CausalLm> model;
  ModelPlan plan;
  LoadTimes times;
};

/// Loads and packs every weight. `context` must outlive the model, `source` need not. Throws
/// CheckpointError where a tensor is missing, has the wrong type, shape or values, or is not used
/// by the model; UnsupportedError as read_decoder_config(); InputError where a kernel that was
/// demanded cannot run; DeviceError where the self-check fails or the GPU cannot be used;
/// UnsupportedError where the program was built without CUDA, or the GPU cannot run the model.
LoadedDecoder load_model(ExecContext& context, const HfConfig& config, const TensorSource& source,
                         const LoadProgress& progress, const LoadOptions& options = {});

/// Runs a decoder whose configuration is already at hand; as load_model().
LoadedDecoder load_decoder(ExecContext& context, const HfConfig& config,
                           const DecoderConfig& decoder, const TensorSource& source,
                           const LoadProgress& progress, const LoadOptions& options = {});

}  // namespace halley
