// The PTX instructions that attention is made of, each as one function.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halley::attention {

/// What the tensor cores multiply; sums are f32.
enum class Operand : uint8_t { kF16, kBf16 };

/// All of a block's dynamic shared memory.
__device__ inline std::byte* shared_memory() {
  extern __shared__ float4 memory[];
  return reinterpret_cast<std::byte*>(memory);
}

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// sums[16 x 8] += a[16 x 16] * b[16 x 8]. Lane 4g + c has a: rows g and g + 8 alternating, columns
/// 2c and 2c + 1, then 2c + 8 and 2c + 9; b: rows 2c, 2c + 1, then 2c + 8, 2c + 9 of column g;
/// sums: row g columns 2c, 2c + 1, then row g + 8 (PTX ISA, "mma.m16n8k16").
template <Operand kOperand>
__device__ inline void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (kOperand == Operand::kF16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Four 8 x 8 matrices of 16-bit elements; lane i names row i % 8 of matrix i / 8. Element j of
/// `out` is a b (or a) fragment of matrix j; of its transpose with kTransposed.
template <bool kTransposed>
__device__ inline void load_matrices(uint32_t (&out)[4], uint32_t row) {
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

/// Words of shared memory. Loops use these with addresses of 32 bits: through pointers the compiler
/// makes each address anew, with a slow look at the block's place in its cluster.
__device__ inline uint32_t load_shared_word(uint32_t from) {
  uint32_t word;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
  return word;
}
__device__ inline uint2 load_shared_pair(uint32_t from) {
  uint2 words;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
               : "=r"(words.x), "=r"(words.y)
               : "r"(from)
               : "memory");
  return words;
}
__device__ inline uint4 load_shared_quad(uint32_t from) {
  uint4 words;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(from)
               : "memory");
  return words;
}
__device__ inline void store_shared_word(uint32_t to, uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
__device__ inline void store_shared_quad(uint32_t to, uint4 words) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}

/// Starts a copy of kBytes from device to shared memory, both aligned to kBytes; zeros instead
/// where !is_valid, and then `from` is not read.
template <int kBytes>
__device__ inline void start_copy(uint32_t to, const std::byte* from, bool is_valid) {
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

/// Barriers in shared memory, of 8 bytes: complete a phase when `num_arrivals` have come and all
/// announced bytes are there. Phases are waited for by their parity, 0 first.
__device__ inline void init_barrier(uint32_t barrier, int num_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals)
               : "memory");
}
/// After init_barrier(), before others of the block or bulk copies use them.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void arrive_and_expect(uint32_t barrier, int num_bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
               "r"(num_bytes)
               : "memory");
}
__device__ inline bool has_completed(uint32_t barrier, uint32_t parity) {
  uint32_t result;
  asm volatile(
      "{.reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;"
      " selp.u32 %0, 1, 0, done;}"
      : "=r"(result)
      : "r"(barrier), "r"(parity)
      : "memory");
  return result != 0;
}
__device__ inline void wait_for_barrier(uint32_t barrier, uint32_t parity) {
  while (!has_completed(barrier, parity)) {
  }
}

/// Starts the copy of `num_bytes`, a multiple of 16 as both addresses are; counted by the barrier.
__device__ inline void start_bulk_copy(uint32_t to, const std::byte* from, int num_bytes,
                                       uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(num_bytes), "r"(barrier)
      : "memory");
}

/// Orders the thread's own reads and writes of shared memory before what bulk copies and tensor
/// cores do there next.
__device__ inline void fence_shared_for_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Copies started since the last call become one group, possibly empty.
__device__ inline void close_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/// Waits until at most kNumLeft of the calling thread's newest groups are in flight.
template <int kNumLeft>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kNumLeft) : "memory");
}

/// Bytes of the eight in (a, b), a's lowest first, chosen by the selector's four nibbles.
__device__ inline uint32_t permute_bytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

/// (a & mask) | bits.
__device__ inline uint32_t mask_and_set(uint32_t a, uint32_t mask, uint32_t bits) {
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

/// a + b for two f16.
__device__ inline uint32_t add_f16x2(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

/// Two e4m3 of the low 16 bits as two f16; exact.
__device__ inline uint32_t e4m3x2_to_f16x2(uint32_t codes) {
  uint32_t result;
  asm("{.reg .b16 low; cvt.u16.u32 low, %1; cvt.rn.f16x2.e4m3x2 %0, low;}"
      : "=r"(result)
      : "r"(codes));
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

/// The elements of a pair.
template <Operand kOperand>
__device__ inline float2 unpack(uint32_t pair) {
  if constexpr (kOperand == Operand::kF16) {
    return {f16_bits_to_f32(pair & 0xFFFFu), f16_bits_to_f32(pair >> 16)};
  } else {
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF0000u)};
  }
}

/// 2^x, to about 2 units in the last place; 0 for -infinity.
__device__ inline float exp2_approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace halley::attention
