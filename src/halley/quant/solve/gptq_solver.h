// GPTQ (Frantar et al. 2022): rounds a weight column by column, with error feedback: each column's
// error is compensated by the columns that are not yet rounded.
#pragma once

#include <cstdint>
#include <string>

#include "halley/core/exec_context.h"
#include "halley/core/matrix.h"
#include "halley/quant/base/quantized_weight.h"
#include "halley/quant/solve/grid_rule.h"

namespace halley {

struct GptqOptions {
  bool has_act_order = false;  // columns by descending diagonal of the Hessian ("desc_act")
  bool has_static_groups =
      false;           // scales and zero points from the original weights, in file order
  double damp = 0.01;  // of the mean diagonal, added to the diagonal
};

/// w [N, K] f32 and gram [K, K] f32, the Hessian X^T X of the inputs; both are overwritten. A
/// channel whose diagonal is zero ("dead") gets weights of zero. With act-order and without static
/// groups the result has group_of_input (g_idx). Where damping does not make the matrix positive
/// definite, it is raised tenfold up to 1; then throws InputError "<name>: ...".
QuantizedWeight solve_gptq(ExecContext& context, const std::string& name, Matrix w, Matrix gram,
                           const GridRule& rule, const GptqOptions& options);

}  // namespace halley
