// Two planes of bytes to f16 numbers, in registers.
//
// Everything is volatile assembly: ptxas then keeps decoding between the products that are in
// flight. As plain C++ it moves the instructions, finds hazards and serialises the tensor cores.
#pragma once

#include <cstdint>

namespace halley::cuda {

/// Four numbers, as core/nested_float.h joins one: two upper bytes in the low half of each of
/// `u01` and `u23`, four lower bytes in `l`. The last bit that `u` keeps is that of `l` plus one
/// where it was rounded upwards: less the bit of `l`, its other bits are those of the number. No
/// byte borrows from the next: where that bit of `l` is set, `u` is at least 1.
__device__ __forceinline__ void join_four(uint32_t u01, uint32_t u23, uint32_t l, uint32_t* f01,
                                          uint32_t* f23) {
  asm volatile(
      "{.reg .b32 u, t;\n"
      "prmt.b32 u, %2, %3, 0x5410;\n"
      "shr.u32 t, %4, 7; and.b32 t, t, 0x01010101;\n"
      "sub.u32 t, u, t;\n"
      "shr.u32 t, t, 1; and.b32 t, t, 0x3F3F3F3F;\n"
      "lop3.b32 t, u, 0x80808080, t, 0xEA;\n"
      "prmt.b32 %0, %4, t, 0x5140; prmt.b32 %1, %4, t, 0x7362;}"
      : "=&r"(*f01), "=&r"(*f23)
      : "r"(u01), "r"(u23), "r"(l));
}

}  // namespace halley::cuda
