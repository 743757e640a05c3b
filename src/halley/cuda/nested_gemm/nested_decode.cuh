// Two planes of bytes to f16 numbers, in registers.
//
// Everything is volatile assembly: ptxas then keeps decoding between the products that are in
// flight. As plain C++ it moves the instructions, finds hazards and serialises the tensor cores.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// Four numbers, as core/nested_float.h joins one: four upper bytes and four lower ones. The last
/// bit that `u` keeps is that of `l` plus one where it was rounded upwards: less the bit of `l`,
/// its other bits are those of the number. No byte borrows from the next: where that bit of `l` is
/// set, `u` is at least 1.
__device__ __forceinline__ void join_four(uint32_t u, uint32_t l, uint32_t* f01, uint32_t* f23) {
  asm volatile(
      "{.reg .b32 t;\n"
      "shr.u32 t, %3, 7; and.b32 t, t, 0x01010101;\n"
      "sub.u32 t, %2, t;\n"
      "shr.u32 t, t, 1; and.b32 t, t, 0x3F3F3F3F;\n"
      "lop3.b32 t, %2, 0x80808080, t, 0xEA;\n"
      "prmt.b32 %0, %3, t, 0x5140; prmt.b32 %1, %3, t, 0x7362;}"
      : "=&r"(*f01), "=&r"(*f23)
      : "r"(u), "r"(l));
}

}  // namespace halley::cuda
