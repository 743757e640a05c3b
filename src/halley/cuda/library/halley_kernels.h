// The C ABI of libhalley_kernels.so.
/* libhalley_kernels: products of 4-bit weights on NVIDIA Hopper, for any language that calls C.
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
  HALLEY_KERNELS_DEVICE = 3,         /* no GPU, not a Hopper, no memory, an error of CUDA */
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

/* What codes mean. y[m,n] = sum over k of x[m,k] * w[n,k]. */
typedef enum halley_kernels_kind {
  /* w = scale[n] * (code - zero[n]); x is s8 with a scale a row. */
  HALLEY_KERNELS_W4A8 = 0,
  /* w = scale[n] * (group_scale[n,g] * (code - zero[n,g])), in brackets s8; x as above. */
  HALLEY_KERNELS_W4A8_GROUP = 1,
  /* w = scale[n,g] * (code - zero[n,g]); x is f16. */
  HALLEY_KERNELS_W4A16_F16 = 2,
  /* The same; x is bf16. */
  HALLEY_KERNELS_W4A16_BF16 = 3
} halley_kernels_kind;

/* A weight in memory of the host. G = ceil(K / group_size) groups of each output. */
typedef struct halley_kernels_source {
  halley_kernels_kind kind;
  int64_t N, K;         /* outputs, inputs */
  int64_t group_size;   /* 32, 64, a multiple of 128, or K; HALLEY_KERNELS_W4A8: K */
  const uint8_t* codes; /* [N, K], one a byte, 0 to 15 */
  const float* scales;  /* [N] of the W4A8 kinds, [N, G] of others */
  const float* zeros;   /* [N, G], 0 to 16, integers but for HALLEY_KERNELS_W4A8; null: all 8 */
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
/* Whether products need x_sums. */
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

/* The tile and the schedule of a product of M rows, as text. At most size bytes, the last is 0. */
halley_kernels_status halley_kernels_describe(halley_kernels_context* context,
                                              const halley_kernels_weight* weight, int64_t M,
                                              char* text, size_t size);

#ifdef __cplusplus
}
#endif
