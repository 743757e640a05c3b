// C++ over halley_kernels.h: owners and exceptions. Needs nothing but that header and the library.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <halley_kernels.h>

namespace halley_kernels {

/// A status other than HALLEY_KERNELS_OK; what() is the library's message.
class Error : public std::runtime_error {
 public:
  Error(halley_kernels_status status, const char* message)
      : std::runtime_error(message), status_(status) {}
  halley_kernels_status status() const { return status_; }

 private:
  halley_kernels_status status_;
};

inline void check(halley_kernels_status status) {
  if (status != HALLEY_KERNELS_OK) throw Error(status, halley_kernels_last_error());
}

struct Delete {
  void operator()(halley_kernels_context* context) const { halley_kernels_close(context); }
  void operator()(halley_kernels_weight* weight) const { halley_kernels_free(weight); }
  void operator()(halley_kernels_experts* experts) const { halley_kernels_free_experts(experts); }
  void operator()(halley_kernels_block_weight* weight) const { halley_kernels_free_blocks(weight); }
};

class Context;

/// Move-only; must not outlive its Context.
class Weight {
 public:
  Weight(const Context& context, const halley_kernels_source& source);

  size_t num_bytes() const { return halley_kernels_weight_bytes(weight_.get()); }
  bool needs_sums() const { return halley_kernels_needs_sums(weight_.get()) != 0; }
  const halley_kernels_weight* get() const { return weight_.get(); }

 private:
  std::unique_ptr<halley_kernels_weight, Delete> weight_;
};

/// The weights of a layer's experts. Move-only; must not outlive its Context and the weights.
class Experts {
 public:
  /// As halley_kernels_join_experts(); `biases` empty: there are none.
  Experts(const Context& context, const std::vector<const Weight*>& weights, bool is_gated,
          const std::vector<const float*>& biases = {});

  const halley_kernels_experts* get() const { return experts_.get(); }

 private:
  std::unique_ptr<halley_kernels_experts, Delete> experts_;
};

/// A weight of W4Ax. Move-only; must not outlive its Context.
class BlockWeight {
 public:
  /// As halley_kernels_pack_blocks().
  BlockWeight(const Context& context, int64_t N, int64_t K, const uint8_t* qweight,
              const float* scales);

  const halley_kernels_block_weight* get() const { return weight_.get(); }

 private:
  std::unique_ptr<halley_kernels_block_weight, Delete> weight_;
};

/// Move-only. Every function throws Error.
class Context {
 public:
  explicit Context(int device = 0, size_t workspace_bytes = 0) {
    halley_kernels_context* context = nullptr;
    check(halley_kernels_open(device, workspace_bytes, &context));
    context_.reset(context);
  }

  /// "hopper", "mma", or null for the first that the GPU runs.
  void choose(const char* kernels) const { check(halley_kernels_choose(get(), kernels)); }
  void allow_pdl(bool is_allowed) const {
    check(halley_kernels_allow_pdl(get(), is_allowed ? 1 : 0));
  }

  void quantize_rows(const halley_kernels_matrix& x, const halley_kernels_matrix& quantized,
                     float* scales, int32_t* sums, void* cuda_stream) const {
    check(halley_kernels_quantize_rows(get(), x, quantized, scales, sums, cuda_stream));
  }
  /// As GEMMs with the weight take x.
  void quantize(const Weight& weight, const halley_kernels_matrix& x,
                const halley_kernels_rows& quantized, void* cuda_stream) const {
    check(halley_kernels_quantize(get(), weight.get(), x, &quantized, cuda_stream));
  }
  void gemm(const Weight& weight, const halley_kernels_input& input, const halley_kernels_matrix& y,
            void* cuda_stream) const {
    check(halley_kernels_gemm(get(), weight.get(), &input, y, cuda_stream));
  }
  /// Another name of gemm().
  void product(const Weight& weight, const halley_kernels_input& input,
               const halley_kernels_matrix& y, void* cuda_stream) const {
    gemm(weight, input, y, cuda_stream);
  }
  void grouped_gemm(const Experts& experts, const halley_kernels_input& input,
                    const halley_kernels_grouping& grouping, const halley_kernels_matrix& y,
                    void* cuda_stream) const {
    check(halley_kernels_grouped_gemm(get(), experts.get(), &input, &grouping, y, cuda_stream));
  }
  void quantize_blocks(const halley_kernels_matrix& values, float s4_clip,
                       const halley_kernels_block_input& input, void* cuda_stream) const {
    check(halley_kernels_quantize_blocks(get(), values, s4_clip, &input, cuda_stream));
  }
  void block_gemm(const BlockWeight& weight, const halley_kernels_block_input& input,
                  const halley_kernels_matrix& y, void* cuda_stream) const {
    check(halley_kernels_block_gemm(get(), weight.get(), &input, y, cuda_stream));
  }
  std::string describe(const Weight& weight, int64_t M) const {
    char text[1024];
    check(halley_kernels_describe(get(), weight.get(), M, text, sizeof(text)));
    return text;
  }
  halley_kernels_context* get() const { return context_.get(); }

 private:
  std::unique_ptr<halley_kernels_context, Delete> context_;
};

inline Weight::Weight(const Context& context, const halley_kernels_source& source) {
  halley_kernels_weight* weight = nullptr;
  check(halley_kernels_pack(context.get(), &source, &weight));
  weight_.reset(weight);
}

inline Experts::Experts(const Context& context, const std::vector<const Weight*>& weights,
                        bool is_gated, const std::vector<const float*>& biases) {
  if (!biases.empty() && biases.size() != weights.size()) {
    throw Error(HALLEY_KERNELS_WRONG_ARGUMENT, "biases: expected none, or one for each weight.");
  }
  std::vector<const halley_kernels_weight*> handles;
  for (const Weight* weight : weights) handles.push_back(weight->get());
  halley_kernels_experts* experts = nullptr;
  check(halley_kernels_join_experts(
      context.get(), handles.data(), static_cast<int64_t>(handles.size()),
      biases.empty() ? nullptr : biases.data(), is_gated ? 1 : 0, &experts));
  experts_.reset(experts);
}

inline BlockWeight::BlockWeight(const Context& context, int64_t N, int64_t K,
                                const uint8_t* qweight, const float* scales) {
  halley_kernels_block_weight* weight = nullptr;
  check(halley_kernels_pack_blocks(context.get(), N, K, qweight, scales, &weight));
  weight_.reset(weight);
}

}  // namespace halley_kernels
