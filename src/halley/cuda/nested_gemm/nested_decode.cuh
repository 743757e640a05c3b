// Two planes of bytes to f16 numbers, in registers.
//
// Instructions are in order (ptx/packed_math.cuh): ptxas then keeps decoding between the products
// that are in flight. As plain C++ it moves the instructions, finds hazards and serialises the
// tensor cores.
#pragma once

#include <cstdint>

#include "halley/cuda/ptx/packed_math.cuh"

namespace halley::cuda {

namespace in_order = ptx::in_order;

/// Four numbers, as core/nested_float.h joins one: four upper bytes and four lower ones. The last
/// bit that `u` keeps is that of `l` plus one where it was rounded upwards: less the bit of `l`,
/// its other bits are those of the number. No byte borrows from the next: where that bit of `l` is
/// set, `u` is at least 1.
__device__ __forceinline__ void join_four(uint32_t u, uint32_t l, uint32_t* f01, uint32_t* f23) {
  const uint32_t rounded_up = in_order::and_b32(in_order::shr_u32(l, 7), 0x01010101);
  const uint32_t sum = in_order::sub_u32(u, rounded_up);
  const uint32_t upper = in_order::and_b32(in_order::shr_u32(sum, 1), 0x3F3F3F3F);
  const uint32_t with_sign = in_order::lop3_b32<ptx::kAndOr>(u, 0x80808080, upper);
  *f01 = in_order::prmt_b32(l, with_sign, 0x5140);
  *f23 = in_order::prmt_b32(l, with_sign, 0x7362);
}

}  // namespace halley::cuda
