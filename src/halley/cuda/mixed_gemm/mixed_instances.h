// The compiled instances of the kernel, one in a .cu file each.
#pragma once

#include "halley/cuda/mixed_gemm/mixed_arguments.h"

namespace halley::cuda {

void launch_u4_s8_16x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_s8_16x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_s8_32x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_s8_48x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_s8_64x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_s8_64x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_s8_128x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_s8_128x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_group_s8_16x128(const MixedMaps& maps, const MixedArguments& args,
                               cudaStream_t stream);
void launch_u4_group_s8_16x256(const MixedMaps& maps, const MixedArguments& args,
                               cudaStream_t stream);
void launch_u4_group_s8_32x128(const MixedMaps& maps, const MixedArguments& args,
                               cudaStream_t stream);
void launch_u4_group_s8_48x128(const MixedMaps& maps, const MixedArguments& args,
                               cudaStream_t stream);
void launch_u4_group_s8_64x128(const MixedMaps& maps, const MixedArguments& args,
                               cudaStream_t stream);
void launch_u4_group_s8_64x256(const MixedMaps& maps, const MixedArguments& args,
                               cudaStream_t stream);
void launch_u4_group_s8_128x128(const MixedMaps& maps, const MixedArguments& args,
                                cudaStream_t stream);
void launch_u4_group_s8_128x256(const MixedMaps& maps, const MixedArguments& args,
                                cudaStream_t stream);
void launch_u4_f16_16x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_f16_16x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_f16_32x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_f16_48x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_f16_64x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_f16_64x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_f16_128x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_f16_128x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_bf16_16x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_bf16_16x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_bf16_32x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_bf16_48x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_bf16_64x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_bf16_64x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_bf16_128x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u4_bf16_128x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u8_f16_16x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u8_f16_16x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u8_f16_64x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u8_f16_64x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u8_f16_128x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u8_bf16_16x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u8_bf16_16x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u8_bf16_64x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u8_bf16_64x256(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);
void launch_u8_bf16_128x128(const MixedMaps& maps, const MixedArguments& args, cudaStream_t stream);

struct NarrowArguments;
void launch_narrow_u4_s8(const NarrowArguments& args, cudaStream_t stream);
void launch_narrow_u4_group_s8(const NarrowArguments& args, cudaStream_t stream);
void launch_narrow_u4_f16(const NarrowArguments& args, cudaStream_t stream);
void launch_narrow_u4_bf16(const NarrowArguments& args, cudaStream_t stream);
void launch_narrow_u8_f16(const NarrowArguments& args, cudaStream_t stream);
void launch_narrow_u8_bf16(const NarrowArguments& args, cudaStream_t stream);

}  // namespace halley::cuda
