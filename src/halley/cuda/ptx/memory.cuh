// Loads and stores with a state space, a cache operator or a memory order; atomics.
//
// Shared memory is accessed by 32-bit addresses: with pointers the compiler recomputes each
// address, and reads the CTA's rank in its cluster to do so, which is slow. Accumulators of wgmma
// have accesses of their own type: as bits they would be moved first, and wgmma serialised.
#pragma once

#include <cstdint>

namespace halley::ptx {

/// cvta.to.shared: the address of a pointer into shared memory of this CTA.
__device__ __forceinline__ uint32_t cvta_to_shared(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ uint32_t ld_shared_u16(uint32_t from) {
  uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(from) : "memory");
  return value;
}
__device__ __forceinline__ uint32_t ld_shared_b32(uint32_t from) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
__device__ __forceinline__ uint2 ld_shared_b32x2(uint32_t from) {
  uint2 words;
  asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "r"(from)
               : "memory");
  return words;
}
__device__ __forceinline__ uint4 ld_shared_b32x4(uint32_t from) {
  uint4 words;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(from)
               : "memory");
  return words;
}
__device__ __forceinline__ void ld_shared_x4(uint32_t from, int32_t (&to)[4]) {
  asm volatile("ld.shared.v4.s32 {%0,%1,%2,%3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
__device__ __forceinline__ void ld_shared_x4(uint32_t from, float (&to)[4]) {
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void st_shared_b32(uint32_t to, uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
__device__ __forceinline__ void st_shared_b32x2(uint32_t to, uint2 words) {
  asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(to), "r"(words.x), "r"(words.y) : "memory");
}
__device__ __forceinline__ void st_shared_b32x4(uint32_t to, uint4 words) {
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}
__device__ __forceinline__ void st_shared_x4(uint32_t to, const int32_t* from) {
  asm volatile("st.shared.v4.s32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(from[0]), "r"(from[1]),
               "r"(from[2]), "r"(from[3])
               : "memory");
}
__device__ __forceinline__ void st_shared_x4(uint32_t to, const float* from) {
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(to), "f"(from[0]), "f"(from[1]),
               "f"(from[2]), "f"(from[3])
               : "memory");
}

/// Stores that end in the L2 cache (.cg), for CTAs of other SMs.
__device__ __forceinline__ void st_global_cg_x4(int32_t* to, const int32_t* from) {
  asm volatile("st.global.cg.v4.s32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(from[0]), "r"(from[1]),
               "r"(from[2]), "r"(from[3])
               : "memory");
}
__device__ __forceinline__ void st_global_cg_x4(float* to, const float* from) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(from[0]), "f"(from[1]),
               "f"(from[2]), "f"(from[3])
               : "memory");
}

/// Memory order, scope and cache operator of loads and stores. Relaxed accesses are atomic word by
/// word, are not served from a stale L1 line, and stay on their side of griddepcontrol.wait, past
/// which ptxas moves weak loads. .no_allocate: the L1 cache does not keep the line.
struct RelaxedGpu {
  static constexpr char kQualifiers[] = "relaxed.gpu.global";
};
struct RelaxedGpuNoAllocate {
  static constexpr char kQualifiers[] = "relaxed.gpu.global.L1::no_allocate";
};
struct RelaxedSys {
  static constexpr char kQualifiers[] = "relaxed.sys.global";
};

/// A vector of kWords words, aligned to its size.
template <class Order, int kWords>
__device__ __forceinline__ void ld_global(const void* from, uint32_t* words) {
  static_assert(kWords == 1 || kWords == 2 || kWords == 4);
  if constexpr (kWords == 1) {
    asm volatile("ld.%2.b32 %0, [%1];"
                 : "=r"(words[0])
                 : "l"(from), "C"(Order::kQualifiers)
                 : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("ld.%3.v2.b32 {%0,%1}, [%2];"
                 : "=r"(words[0]), "=r"(words[1])
                 : "l"(from), "C"(Order::kQualifiers)
                 : "memory");
  } else {
    asm volatile("ld.%5.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "l"(from), "C"(Order::kQualifiers)
                 : "memory");
  }
}
template <class Order, int kWords>
__device__ __forceinline__ void st_global(void* to, const uint32_t* words) {
  static_assert(kWords == 1 || kWords == 2 || kWords == 4);
  if constexpr (kWords == 1) {
    asm volatile("st.%2.b32 [%0], %1;" ::"l"(to), "r"(words[0]), "C"(Order::kQualifiers)
                 : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("st.%3.v2.b32 [%0], {%1,%2};" ::"l"(to), "r"(words[0]), "r"(words[1]),
                 "C"(Order::kQualifiers)
                 : "memory");
  } else {
    asm volatile("st.%5.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3]), "C"(Order::kQualifiers)
                 : "memory");
  }
}
/// A predicated load (@p ld): `words` stay as they are unless `is_there`. One declaration, so that
/// the load is not in a branch of its own.
__device__ __forceinline__ void ld_global_if(bool is_there, const void* from, uint4* words) {
  asm volatile(
      "{.reg .pred p;\n"
      "setp.ne.s32 p, %5, 0;\n"
      "@p ld.global.v4.b32 {%0,%1,%2,%3}, [%4];}"
      : "+r"(words->x), "+r"(words->y), "+r"(words->z), "+r"(words->w)
      : "l"(from), "r"(static_cast<int>(is_there))
      : "memory");
}
/// Acquires what other threads of the GPU released with the value that this reads.
__device__ __forceinline__ uint32_t ld_acquire_gpu(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

/// *to += value, and releases what the thread, and those that it synchronised with, stored before.
__device__ __forceinline__ void red_add_release_gpu(uint32_t* to, uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
/// *to += value, releases as red_add_release_gpu(), and acquires what those who added before
/// released. Returns the old value.
__device__ __forceinline__ uint32_t atom_add_acq_rel_gpu(uint32_t* to, uint32_t value) {
  uint32_t old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(to), "r"(value)
               : "memory");
  return old;
}

/// Bytes of one prefetch: a sector of the L2 cache.
inline constexpr int kL2SectorBytes = 32;
/// Prefetches the sector of `from` to L2. Later writes to it hit the L2 cache too.
__device__ __forceinline__ void prefetch_global_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

}  // namespace halley::ptx
