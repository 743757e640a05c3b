// PTX instructions that decode and prefill attention share, one function each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halley::attention {

/// Type of the MMA operands; accumulators are f32.
enum class Operand : uint8_t { kF16, kBf16 };

/// All dynamic shared memory of the CTA.
__device__ inline std::byte* shared_memory() {
  extern __shared__ float4 memory[];
  return reinterpret_cast<std::byte*>(memory);
}

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// mma.m16n8k16: acc[16 x 8] += a[16 x 16] * b[16 x 8]. Fragments of lane 4g + c: a: rows g and g +
/// 8 alternating, columns 2c and 2c + 1, then 2c + 8 and 2c + 9;  b: rows 2c, 2c + 1, then 2c + 8,
/// 2c + 9 of column g;  acc: row g columns 2c, 2c + 1, then row g + 8.
template <Operand kOperand>
__device__ inline void mma_m16n8k16(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (kOperand == Operand::kF16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// ldmatrix.x4: four 8 x 8 matrices of 16-bit elements; lane i passes the address of row i % 8 of
/// matrix i / 8. Element j of `out` is a fragment of matrix j, or of its transpose with
/// kTransposed.
template <bool kTransposed>
__device__ inline void ldmatrix_x4(uint32_t (&out)[4], uint32_t row) {
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                 : "r"(row)
                 : "memory");
  }
}

/// Loads and stores of shared memory by 32-bit addresses: with pointers the compiler recomputes
/// each address, and reads the CTA's rank in its cluster to do so, which is slow.
__device__ inline uint32_t ld_shared_b32(uint32_t from) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
__device__ inline uint2 ld_shared_b32x2(uint32_t from) {
  uint2 words;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "r"(from)
               : "memory");
  return words;
}
__device__ inline uint4 ld_shared_b32x4(uint32_t from) {
  uint4 words;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(from)
               : "memory");
  return words;
}
__device__ inline void st_shared_b32(uint32_t to, uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
__device__ inline void st_shared_b32x4(uint32_t to, uint4 words) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}

/// Copies kBytes from device to shared memory asynchronously, both aligned to kBytes. If !is_valid
/// it zero-fills and does not read `from`.
template <int kBytes>
__device__ inline void cp_async(uint32_t to, const std::byte* from, bool is_valid) {
  const int num_bytes = is_valid ? kBytes : 0;
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(num_bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(num_bytes)
                 : "memory");
  }
}

/// mbarriers are 8 bytes of shared memory. A phase completes when `num_arrivals` threads have
/// arrived and all expected bytes have landed. Waits name the phase by its parity, 0 first.
__device__ inline void mbarrier_init(uint32_t barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals)
               : "memory");
}
/// Makes initialized mbarriers visible to the other threads of the CTA and to the async proxy.
__device__ inline void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void mbarrier_arrive_expect_tx(uint32_t barrier, int num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(num_bytes)
               : "memory");
}
__device__ inline bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t result;
  asm volatile(
      "{.reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;"
      " selp.u32 %0, 1, 0, done;}"
      : "=r"(result)
      : "r"(barrier), "r"(parity)
      : "memory");
  return result != 0;
}
__device__ inline void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

/// Bulk copy of `num_bytes`, a multiple of 16 as both addresses are; the mbarrier counts its bytes.
__device__ inline void cp_async_bulk(uint32_t to, const std::byte* from, int num_bytes,
                                     uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(num_bytes), "r"(barrier)
      : "memory");
}

/// Orders the thread's generic-proxy accesses to shared memory before later async-proxy accesses:
/// bulk copies and wgmma.
__device__ inline void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// cp.async copies since the last call become one group, possibly empty.
__device__ inline void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits until at most kNumLeft of the calling thread's newest cp.async groups are in flight.
template <int kNumLeft>
__device__ inline void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNumLeft) : "memory");
}

/// Selects four of the eight bytes of (a, b), a's lowest first, by the selector's nibbles.
__device__ inline uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

/// (a & mask) | bits.
__device__ inline uint32_t lop3_and_or(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(result) : "r"(a), "r"(mask), "r"(bits));
  return result;
}

/// a * b + c for two f16.
__device__ inline uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
  return result;
}

/// a * b for two f16.
__device__ inline uint32_t mul_f16x2(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

/// a + b for two f16.
__device__ inline uint32_t add_f16x2(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

/// Two e4m3 in the low 16 bits as two f16; exact.
__device__ inline uint32_t e4m3x2_to_f16x2(uint32_t packed) {
  uint32_t result;
  asm("{.reg .b16 low; cvt.u16.u32 low, %1; cvt.rn.f16x2.e4m3x2 %0, low;}"
      : "=r"(result)
      : "r"(packed));
  return result;
}

/// Rounds two f32 to a pair, `low` in the low half.
template <Operand kOperand>
__device__ inline uint32_t pack(float low, float high) {
  uint32_t result;
  if constexpr (kOperand == Operand::kF16) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  }
  return result;
}

/// The f16 in the low 16 bits.
__device__ inline float f16_bits_to_f32(uint32_t bits) {
  float result;
  asm("{.reg .b16 low; cvt.u16.u32 low, %1; cvt.f32.f16 %0, low;}" : "=f"(result) : "r"(bits));
  return result;
}

/// The two elements of a pair as f32.
template <Operand kOperand>
__device__ inline float2 unpack(uint32_t pair) {
  if constexpr (kOperand == Operand::kF16) {
    return {f16_bits_to_f32(pair & 0xFFFFu), f16_bits_to_f32(pair >> 16)};
  } else {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
  }
}

/// 2^x, to about 2 ulp; 0 for -infinity.
__device__ inline float exp2_approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace halley::attention
