// The compiled instances of the kernel, one in a .cu file each.
#pragma once

#include "halley/cuda/mma_gemm/mma_arguments.h"

namespace halley::cuda {

void launch_mma_u4_f16_16(const MmaArguments& args, int shared_bytes, cudaStream_t stream);
void launch_mma_u4_f16_64(const MmaArguments& args, int shared_bytes, cudaStream_t stream);
void launch_mma_u4_bf16_16(const MmaArguments& args, int shared_bytes, cudaStream_t stream);
void launch_mma_u4_bf16_64(const MmaArguments& args, int shared_bytes, cudaStream_t stream);
void launch_mma_u4_s8_16(const MmaArguments& args, int shared_bytes, cudaStream_t stream);
void launch_mma_u4_s8_64(const MmaArguments& args, int shared_bytes, cudaStream_t stream);
void launch_mma_u4_group_s8_16(const MmaArguments& args, int shared_bytes, cudaStream_t stream);
void launch_mma_u4_group_s8_64(const MmaArguments& args, int shared_bytes, cudaStream_t stream);

void launch_mma_s4_blocks_16(const MmaArguments& args, int shared_bytes, cudaStream_t stream);
void launch_mma_s4_blocks_64(const MmaArguments& args, int shared_bytes, cudaStream_t stream);

}  // namespace halley::cuda
