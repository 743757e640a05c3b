// The compiled instances of the kernels, which CMakeLists.txt lists.
#pragma once

#include "halley/cuda/mixed_gemm/mixed_arguments.h"
#include "halley/cuda/runtime/cuda_context.h"

namespace halley::cuda {

struct U4S8Decoder;
struct U4GroupS8Decoder;
struct U4F16Decoder;
struct U4Bf16Decoder;
struct U8F16Decoder;
struct U8Bf16Decoder;

/// Of a kind's tile that has_tile().
template <class Decoder, int kTokens, int kOutputs>
void launch_mixed(const CudaContext& context, const MixedMaps& maps, const MixedArguments& args);

struct NarrowArguments;
template <class Decoder>
void launch_narrow(const CudaContext& context, const NarrowArguments& args);

}  // namespace halley::cuda
