// The C ABI of libhalley_kernels.so.
/* libhalley_kernels: products of weights of 8 to 1 bits on NVIDIA GPUs, for any language that calls
 * C.
 *
 * Weights of 4 bits on Hopper (compute capability 9.0) by kernels of its own, on 8.0, 8.6, 8.7 and
 * 8.9 by others (halley_kernels_choose()): the same weights, the same calls. Of other bits on
 * Hopper alone.
 *
 * All memory of products (x, y, scales) is the caller's, on the GPU; weights are packed once from
 * arrays of the host. Calls queue work on the caller's stream and return; they can be captured in
 * CUDA graphs. Every function but those that free returns a status; halley_kernels_last_error()
 * then says what was wrong and what to do. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a function or a struct changes. */
#define HALLEY_KERNELS_VERSION 1
int halley_kernels_version(void);

typedef enum halley_kernels_status {
  HALLEY_KERNELS_OK = 0,
  HALLEY_KERNELS_WRONG_ARGUMENT = 1, /* shapes, types, alignment, codes or scales out of range */
  HALLEY_KERNELS_UNSUPPORTED = 2,    /* a form of weight that these kernels do not take */
  HALLEY_KERNELS_DEVICE = 3,         /* no GPU, none of 8.0 to 9.0, no memory, an error of CUDA */
  HALLEY_KERNELS_OTHER = 4           /* no memory of the host */
} halley_kernels_status;

/* Of the calling thread's last call that did not return HALLEY_KERNELS_OK; "" before. */
const char* halley_kernels_last_error(void);

typedef enum halley_kernels_dtype {
  HALLEY_KERNELS_F32 = 0,
  HALLEY_KERNELS_F16 = 1,
  HALLEY_KERNELS_BF16 = 2,
  HALLEY_KERNELS_S8 = 3
} halley_kernels_dtype;

/* A matrix in device memory: columns dense, rows row_stride elements apart. */
typedef struct halley_kernels_matrix {
  void* data;
  halley_kernels_dtype dtype;
  int64_t num_rows, num_cols, row_stride;
} halley_kernels_matrix;

/* One GPU and memory for partial sums. Its products must be queued from one thread at a time, on
 * streams that run one behind the other. */
typedef struct halley_kernels_context halley_kernels_context;
/* workspace_bytes: 0 for 64 MiB, which is enough for any product on an H200. */
halley_kernels_status halley_kernels_open(int device, size_t workspace_bytes,
                                          halley_kernels_context** context);
void halley_kernels_close(halley_kernels_context* context);

/* Which kernels later products of the context use: "hopper" on 9.0; "mma", of mma.sync, on 8.0 to
 * 9.0; null for the first of these that the GPU runs, as after halley_kernels_open(). Results may
 * differ in the last bits of products of f16 and bf16. */
halley_kernels_status halley_kernels_choose(halley_kernels_context* context, const char* kernels);

/* What codes mean. y[m,n] = sum over k of x[m,k] * w[n,k]. */
typedef enum halley_kernels_kind {
  /* w = scale[n] * (code - zero[n]); x is s8 with a scale a row. */
  HALLEY_KERNELS_W4A8 = 0,
  /* w = scale[n] * (group_scale[n,g] * (code - zero[n,g])), in brackets s8; x as above. */
  HALLEY_KERNELS_W4A8_GROUP = 1,
  /* w = scale[n,g] * (code - zero[n,g]); x is f16. */
  HALLEY_KERNELS_W4A16_F16 = 2,
  /* The same; x is bf16. */
  HALLEY_KERNELS_W4A16_BF16 = 3,
  /* w = scale[n,g] * (code - zero[n,g]) of 8, 3, 2 or 1 bits; x is f16 or bf16, or s8 with a scale
   * a row. For few rows: the codes are read once for every eight of them. */
  HALLEY_KERNELS_W8A16 = 4,
  HALLEY_KERNELS_W3A16 = 5,
  HALLEY_KERNELS_W2A16 = 6,
  HALLEY_KERNELS_W1A16 = 7,
  HALLEY_KERNELS_W2A8 = 8,
  HALLEY_KERNELS_W1A8 = 9,
  /* As HALLEY_KERNELS_W4A16_F16 and _BF16 with codes of 8 bits, for any number of rows; by the
   * kernels "hopper" alone. */
  HALLEY_KERNELS_W8A16_F16 = 10,
  HALLEY_KERNELS_W8A16_BF16 = 11
} halley_kernels_kind;

/* A weight in memory of the host. G = ceil(K / group_size) groups of each output. */
typedef struct halley_kernels_source {
  halley_kernels_kind kind;
  int64_t N, K; /* outputs, inputs */
  /* Of 4 bits and HALLEY_KERNELS_W8A16_F16, _BF16 32, 64, a multiple of 128, or K;
   * HALLEY_KERNELS_W4A8: K. Of others a power of two from 32 on (64 beside s8), or K. */
  int64_t group_size;
  const uint8_t* codes; /* [N, K], one a byte, all of its bits: of 4 bits 0 to 15 */
  const float* scales;  /* [N] of the W4A8 kinds, [N, G] of others */
  /* [N, G]; of 4 bits 0 to 16, integers but for HALLEY_KERNELS_W4A8; of HALLEY_KERNELS_W8A16_F16,
   * _BF16 integers from 0 to 256; of others multiples of 1/2 from 0 to 256. Null: all are half the
   * number of codes (8 of 4 bits). */
  const float* zeros;
  const uint8_t* group_scales; /* [N, G], of HALLEY_KERNELS_W4A8_GROUP; else null */
} halley_kernels_source;

/* A packed weight on the context's GPU. Products with it are of one context. */
typedef struct halley_kernels_weight halley_kernels_weight;
/* Waits for the copy. */
halley_kernels_status halley_kernels_pack(halley_kernels_context* context,
                                          const halley_kernels_source* source,
                                          halley_kernels_weight** weight);
void halley_kernels_free(halley_kernels_weight* weight);
/* Bytes on the GPU. */
size_t halley_kernels_weight_bytes(const halley_kernels_weight* weight);
/* Whether products need x_sums: of W4A8 weights, those with zeros and those in groups. */
int halley_kernels_needs_sums(const halley_kernels_weight* weight);

/* x, [M, K] of f32, f16 or bf16, to s8 codes with a scale a row (max|x| / 127) and, where sums is
 * not null, the sum of each row's codes. scales: [M] floats, sums: [M] int32_t, on the GPU. Rows of
 * codes begin at multiples of 16 bytes. */
halley_kernels_status halley_kernels_quantize_rows(halley_kernels_context* context,
                                                   halley_kernels_matrix x,
                                                   halley_kernels_matrix codes, float* scales,
                                                   int32_t* sums, void* cuda_stream);

typedef struct halley_kernels_input {
  halley_kernels_matrix x; /* [M, K]; data and rows at multiples of 16 bytes */
  const float* scales;     /* of s8: [M] */
  const int32_t* sums;     /* of s8, where halley_kernels_needs_sums(): [M] */
  const float* bias;       /* [N], or null */
} halley_kernels_input;

/* y [M, N] of f16, bf16 or f32. cuda_stream is a cudaStream_t; null is the default stream. */
halley_kernels_status halley_kernels_product(halley_kernels_context* context,
                                             const halley_kernels_weight* weight,
                                             const halley_kernels_input* input,
                                             halley_kernels_matrix y, void* cuda_stream);

/* The kernels, the tile and the schedule of a product of M rows, as text. At most size bytes, the
 * last is 0. */
halley_kernels_status halley_kernels_describe(halley_kernels_context* context,
                                              const halley_kernels_weight* weight, int64_t M,
                                              char* text, size_t size);

/* Weights of 4 bits with activations of 4 and 8 bits, both in blocks of 128 inputs (W4Ax), B =
 * ceil(K / 128) of them: y[m,n] = sum over blocks b of x_scale[b,m] * scale[n,b] * (sum over k in b
 * of x[m,k] * (code[n,k] - 8)). On 8.0 to 8.9 blocks of 4 bits are multiplied as s4. */
typedef struct halley_kernels_block_weight halley_kernels_block_weight;
/* From arrays of the host: codes [N, K], one a byte, 0 to 15; scales [N, B], finite, of at most 22
 * significant bits: any number of f16 or bf16 is. Waits for the copy. */
halley_kernels_status halley_kernels_pack_blocks(halley_kernels_context* context, int64_t N,
                                                 int64_t K, const uint8_t* codes,
                                                 const float* scales,
                                                 halley_kernels_block_weight** weight);
void halley_kernels_free_blocks(halley_kernels_block_weight* weight);

/* Inputs of a product. On the GPU: */
typedef struct halley_kernels_block_input {
  halley_kernels_matrix x; /* s8 [M, K]; data and rows at multiples of 16 bytes */
  float* scales;           /* [B, scales_pitch], at a multiple of 16 bytes */
  int64_t scales_pitch;    /* a multiple of 128, M or more */
  int64_t num_s8_inputs;   /* codes of blocks that begin below it have 8 bits; of others -8 to 7 */
  const float* bias;       /* [N], or null; of products alone */
} halley_kernels_block_input;

/* numbers, [M, K] of f32, f16 or bf16, to the codes and scales of `input`: of blocks of 8 bits the
 * scale is max|x| / 127, of those of 4 bits s4_clip * max|x| / 7, s4_clip above 0 and at most 1. */
halley_kernels_status halley_kernels_quantize_blocks(halley_kernels_context* context,
                                                     halley_kernels_matrix numbers, float s4_clip,
                                                     const halley_kernels_block_input* input,
                                                     void* cuda_stream);
/* y [M, N] of f16, bf16 or f32. */
halley_kernels_status halley_kernels_block_product(halley_kernels_context* context,
                                                   const halley_kernels_block_weight* weight,
                                                   const halley_kernels_block_input* input,
                                                   halley_kernels_matrix y, void* cuda_stream);

#ifdef __cplusplus
}
#endif
