// The C ABI of libhalley_kernels.so.
/* libhalley_kernels: GEMM and GEMV with quantized weights of 8 to 1 bits on NVIDIA GPUs, for any
 * language that calls C.
 *
 * 4-bit weights run on Hopper (compute capability 9.0) with wgmma kernels, and on 8.0, 8.6, 8.7 and
 * 8.9 with mma.sync kernels (halley_kernels_choose()): the same weights, the same calls. All
 * others, and weights of experts that are multiplied together, run on Hopper alone.
 *
 * The caller owns the GPU memory of all operands (x, y, scales). Weights are packed once from host
 * arrays. Calls queue work on the caller's stream and return; CUDA graphs can capture them. Every
 * function except those that free returns a status; halley_kernels_last_error() then says what was
 * wrong and what to do. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a function or a struct changes. */
#define HALLEY_KERNELS_VERSION 2
int halley_kernels_version(void);

typedef enum halley_kernels_status {
  HALLEY_KERNELS_OK = 0,
  HALLEY_KERNELS_WRONG_ARGUMENT = 1, /* shapes, types, alignment, values out of range */
  HALLEY_KERNELS_UNSUPPORTED = 2,    /* a weight format that these kernels do not support */
  HALLEY_KERNELS_DEVICE = 3,         /* no GPU, none of 8.0 to 9.0, no memory, an error of CUDA */
  HALLEY_KERNELS_OTHER = 4           /* no memory of the host */
} halley_kernels_status;

/* Message of the calling thread's last call that did not return HALLEY_KERNELS_OK; "" before. */
const char* halley_kernels_last_error(void);

typedef enum halley_kernels_dtype {
  HALLEY_KERNELS_F32 = 0,
  HALLEY_KERNELS_F16 = 1,
  HALLEY_KERNELS_BF16 = 2,
  HALLEY_KERNELS_S8 = 3,
  HALLEY_KERNELS_E4M3 = 4
} halley_kernels_dtype;

/* A matrix in device memory: columns dense, rows row_stride elements apart. */
typedef struct halley_kernels_matrix {
  void* data;
  halley_kernels_dtype dtype;
  int64_t num_rows, num_cols, row_stride;
} halley_kernels_matrix;

/* One GPU and a workspace for split-K and Stream-K partials. One thread at a time may queue GEMMs
 * of a context, on streams that are ordered one after the other. */
typedef struct halley_kernels_context halley_kernels_context;
/* workspace_bytes: 0 for 128 MiB, which is enough for any GEMM on an H200. Weights of the kinds
 * W8A8, FP8 and NESTED leave 32 MiB of it to cuBLASLt, which they open. */
halley_kernels_status halley_kernels_open(int device, size_t workspace_bytes,
                                          halley_kernels_context** context);
void halley_kernels_close(halley_kernels_context* context);

/* Selects the kernels of the context's later GEMMs: "hopper" (wgmma) on 9.0; "mma" (mma.sync)
 * on 8.0 to 9.0; null for the first of these that the GPU runs, as after halley_kernels_open().
 * With x of f16 or bf16 their results may differ in the last bits. */
halley_kernels_status halley_kernels_choose(halley_kernels_context* context, const char* kernels);

/* Whether GEMMs may begin, and read their weight, while the kernel ahead of them on the stream
 * still runs (programmatic dependent launch); 0 after halley_kernels_open(). Allowed where that is
 * a kernel, no copy, and nothing in flight writes a weight. */
halley_kernels_status halley_kernels_allow_pdl(halley_kernels_context* context, int is_allowed);

/* Quantization scheme of a weight. y[m,n] = sum over k of x[m,k] * w[n,k]. */
typedef enum halley_kernels_kind {
  /* Per-channel: w = scale[n] * (code - zero[n]); x is s8 with per-token scales. */
  HALLEY_KERNELS_W4A8 = 0,
  /* Two-level: w = scale[n] * (group_scale[n,g] * (code - zero[n,g])), the inner part s8; x as
   * above. */
  HALLEY_KERNELS_W4A8_GROUP = 1,
  /* Group-wise: w = scale[n,g] * (code - zero[n,g]); x is f16. */
  HALLEY_KERNELS_W4A16_F16 = 2,
  /* The same; x is bf16. */
  HALLEY_KERNELS_W4A16_BF16 = 3,
  /* Group-wise of 8, 3, 2 or 1 bits; x is f16 or bf16, or s8 with per-token scales. GEMV kernels
   * for small M: they read the weight once for every eight rows of x. */
  HALLEY_KERNELS_W8A16 = 4,
  HALLEY_KERNELS_W3A16 = 5,
  HALLEY_KERNELS_W2A16 = 6,
  HALLEY_KERNELS_W1A16 = 7,
  HALLEY_KERNELS_W2A8 = 8,
  HALLEY_KERNELS_W1A8 = 9,
  /* As HALLEY_KERNELS_W4A16_F16 and _BF16 with 8-bit weights, for any M; only the kernels "hopper"
   * support them. */
  HALLEY_KERNELS_W8A16_F16 = 10,
  HALLEY_KERNELS_W8A16_BF16 = 11,
  /* Per-channel: w = scale[n] * (code - zero[n]) of 8 bits; x is s8 with per-token scales. K is a
   * multiple of 16, of the next kind too. */
  HALLEY_KERNELS_W8A8 = 12,
  /* Per-channel: w = scale[n] * e4m3(code); x is e4m3 with per-token scales. */
  HALLEY_KERNELS_FP8 = 13,
  /* f16 weights of magnitudes up to 1.75 in two planes of bytes (arXiv 2506.02024), kept whole. x
   * of f16 multiplies them as they are; x of e4m3, by halley_kernels_quantize(), their upper bytes
   * alone, which are the weights rounded to e4m3. K is a multiple of 128. */
  HALLEY_KERNELS_NESTED = 14
} halley_kernels_kind;

/* A quantized weight in host memory. G = ceil(K / group_size) groups of each output. */
typedef struct halley_kernels_source {
  halley_kernels_kind kind;
  int64_t N, K; /* outputs, inputs */
  /* 4-bit kinds and HALLEY_KERNELS_W8A16_F16, _BF16: 32, 64, a multiple of 128, or K. Per-channel
   * kinds and HALLEY_KERNELS_NESTED: K. Other kinds: a power of two from 32 on (64 with s8 inputs),
   * or K. */
  int64_t group_size;
  /* Quantized values, [N, K] row-major, one a byte; 4 bits: 0 to 15; HALLEY_KERNELS_FP8: no NaN.
   * HALLEY_KERNELS_NESTED: the f16 weights, two bytes each. */
  const uint8_t* codes;
  /* Per-channel kinds and HALLEY_KERNELS_W4A8_GROUP: [N]; HALLEY_KERNELS_NESTED: null; others:
   * [N, G]. */
  const float* scales;
  /* Zero points [N, G]. 4-bit kinds: 0 to 16, integers except for HALLEY_KERNELS_W4A8;
   * HALLEY_KERNELS_W8A16_F16, _BF16: integers from 0 to 256; HALLEY_KERNELS_W8A8: 0 to 256; FP8 and
   * NESTED: null; others: multiples of 1/2 from 0 to 256. Null: all are 2^(bits - 1), e.g. 8 for 4
   * bits. */
  const float* zeros;
  const uint8_t* group_scales; /* HALLEY_KERNELS_W4A8_GROUP: [N, G]; else null */
} halley_kernels_source;

/* A packed weight on the context's GPU. All GEMMs with it use one context. */
typedef struct halley_kernels_weight halley_kernels_weight;
/* Waits for the copy. */
halley_kernels_status halley_kernels_pack(halley_kernels_context* context,
                                          const halley_kernels_source* source,
                                          halley_kernels_weight** weight);
void halley_kernels_free(halley_kernels_weight* weight);
/* Bytes on the GPU. */
size_t halley_kernels_weight_bytes(const halley_kernels_weight* weight);
/* Whether GEMMs with s8 activations need the row sums of x for zero-point correction: weights with
 * zero points or groups do. */
int halley_kernels_needs_sums(const halley_kernels_weight* weight);

/* Quantizes x, [M, K] of f32, f16 or bf16, to s8 with per-token scales (max|x| / 127). If sums is
 * not null it gets the sum of each quantized row. scales: [M] floats, sums: [M] int32_t, on the
 * GPU. Rows of `quantized` begin at multiples of 16 bytes. */
halley_kernels_status halley_kernels_quantize_rows(halley_kernels_context* context,
                                                   halley_kernels_matrix x,
                                                   halley_kernels_matrix quantized, float* scales,
                                                   int32_t* sums, void* cuda_stream);

/* Where quantized rows go, on the GPU. */
typedef struct halley_kernels_rows {
  halley_kernels_matrix x; /* [M, K] of s8 or e4m3; rows begin at multiples of 16 bytes */
  float* scales;           /* [M] */
  int32_t* sums;           /* [M], or null; of e4m3 null */
} halley_kernels_rows;

/* Quantizes x, [M, K] of f32, f16 or bf16, as GEMMs with this weight take it: to s8 as above, or to
 * e4m3 with per-token scales (max|x| / 448), for HALLEY_KERNELS_NESTED in the order of its upper
 * bytes. */
halley_kernels_status halley_kernels_quantize(halley_kernels_context* context,
                                              const halley_kernels_weight* weight,
                                              halley_kernels_matrix x,
                                              const halley_kernels_rows* quantized,
                                              void* cuda_stream);

typedef struct halley_kernels_input {
  halley_kernels_matrix x; /* [M, K]; data and rows at multiples of 16 bytes */
  const float* scales;     /* x of s8 and e4m3: per-token scales [M] */
  const int32_t* sums;     /* x of s8 and halley_kernels_needs_sums(): row sums [M] */
  const float* bias;       /* [N], or null */
} halley_kernels_input;

/* y = x W^T + bias, y [M, N] of f16, bf16 or f32. cuda_stream is a cudaStream_t; null is the
 * default stream. */
halley_kernels_status halley_kernels_gemm(halley_kernels_context* context,
                                          const halley_kernels_weight* weight,
                                          const halley_kernels_input* input,
                                          halley_kernels_matrix y, void* cuda_stream);
/* Another name of halley_kernels_gemm(). */
halley_kernels_status halley_kernels_product(halley_kernels_context* context,
                                             const halley_kernels_weight* weight,
                                             const halley_kernels_input* input,
                                             halley_kernels_matrix y, void* cuda_stream);

/* Writes the kernels, the tile and the schedule of a GEMM with M rows as text: at most size bytes,
 * the last is 0. */
halley_kernels_status halley_kernels_describe(halley_kernels_context* context,
                                              const halley_kernels_weight* weight, int64_t M,
                                              char* text, size_t size);

typedef enum halley_kernels_activation {
  HALLEY_KERNELS_NO_ACTIVATION = 0,
  HALLEY_KERNELS_SILU = 1,
  HALLEY_KERNELS_GELU_TANH = 2,
  HALLEY_KERNELS_GELU_ERF = 3,
  HALLEY_KERNELS_RELU = 4
} halley_kernels_activation;

/* The weights of a layer's experts, multiplied by one launch. */
typedef struct halley_kernels_experts halley_kernels_experts;
/* weights: num_experts (1 to 1024) of one kind and shape, with equal groups and all or none of them
 * with zero points; of the kinds W4A8, W4A8_GROUP, W4A16_F16, W4A16_BF16, W8A16_F16, W8A16_BF16,
 * W8A8 and FP8. They stay the caller's and must outlive the experts. biases: null, or num_experts
 * addresses of [N] floats on the GPU. is_gated: outputs [0, N/2) of each weight are a gate, the
 * others what it multiplies; N/2 is a multiple of 32, of 64 for the full speed of many rows. Waits
 * for a copy. */
halley_kernels_status halley_kernels_join_experts(halley_kernels_context* context,
                                                  const halley_kernels_weight* const* weights,
                                                  int64_t num_experts, const float* const* biases,
                                                  int is_gated, halley_kernels_experts** experts);
void halley_kernels_free_experts(halley_kernels_experts* experts);

/* Slots are pairs of a row and an expert, ordered by expert. Arrays are on the GPU; nothing on the
 * host waits for their contents. */
typedef struct halley_kernels_grouping {
  const int32_t* expert_begin; /* [num_experts + 1], ascending: e has slots [e] to [e + 1] */
  const int32_t* slot_rows;    /* the row of x of each slot; null: x has a row for each slot */
  halley_kernels_activation activation;
} halley_kernels_grouping;

/* y[s] = f(x[row of s] W^T + bias) with the weight of the expert of slot s, or gated f(gate) *
 * other. y: [slots, N], gated [slots, N/2], of f16 or bf16; of x's type where x is not quantized.
 * Slots behind expert_begin[num_experts] are not written. input->bias is not read. */
halley_kernels_status halley_kernels_grouped_gemm(halley_kernels_context* context,
                                                  const halley_kernels_experts* experts,
                                                  const halley_kernels_input* input,
                                                  const halley_kernels_grouping* grouping,
                                                  halley_kernels_matrix y, void* cuda_stream);

/* W4Ax: 4-bit weights and mixed 4- and 8-bit activations, both in B = ceil(K / 128) blocks of 128
 * inputs: y[m,n] = sum over blocks b of x_scale[b,m] * scale[n,b] * (sum over k in b of x[m,k] *
 * (code[n,k] - 8)). On 8.0 to 8.9 4-bit blocks run on s4 tensor cores. */
typedef struct halley_kernels_block_weight halley_kernels_block_weight;
/* Packs host arrays: qweight [N, K] row-major, one a byte, 0 to 15; scales [N, B], finite, with at
 * most 22 significant bits, as every f16 and bf16 value has. Waits for the copy. */
halley_kernels_status halley_kernels_pack_blocks(halley_kernels_context* context, int64_t N,
                                                 int64_t K, const uint8_t* qweight,
                                                 const float* scales,
                                                 halley_kernels_block_weight** weight);
void halley_kernels_free_blocks(halley_kernels_block_weight* weight);

/* Activations of a W4Ax GEMM, on the GPU. */
typedef struct halley_kernels_block_input {
  halley_kernels_matrix x; /* s8 [M, K]; data and rows at multiples of 16 bytes */
  float* scales;           /* [B, scales_pitch], at a multiple of 16 bytes */
  int64_t scales_pitch;    /* a multiple of 128, M or more */
  int64_t num_s8_inputs;   /* blocks that begin below it have 8 bits, others 4: -8 to 7 */
  const float* bias;       /* [N], or null; GEMMs read it */
} halley_kernels_block_input;

/* Quantizes values, [M, K] of f32, f16 or bf16, to x and scales of `input`. The scale of an
 * 8-bit block is max|x| / 127, of a 4-bit block s4_clip * max|x| / 7 with 0 < s4_clip <= 1. */
halley_kernels_status halley_kernels_quantize_blocks(halley_kernels_context* context,
                                                     halley_kernels_matrix values, float s4_clip,
                                                     const halley_kernels_block_input* input,
                                                     void* cuda_stream);
/* y [M, N] of f16, bf16 or f32. */
halley_kernels_status halley_kernels_block_gemm(halley_kernels_context* context,
                                                const halley_kernels_block_weight* weight,
                                                const halley_kernels_block_input* input,
                                                halley_kernels_matrix y, void* cuda_stream);
/* Another name of halley_kernels_block_gemm(). */
halley_kernels_status halley_kernels_block_product(halley_kernels_context* context,
                                                   const halley_kernels_block_weight* weight,
                                                   const halley_kernels_block_input* input,
                                                   halley_kernels_matrix y, void* cuda_stream);

#ifdef __cplusplus
}
#endif
