// Quantization, evaluation and arrays in Python, without logic of their own.
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "halley/base/error.h"
#include "halley/base/str.h"
#include "halley/core/exec_context.h"
#include "halley/core/thread_pool.h"
#include "halley/models/options/model_options.h"
#include "halley/python/bindings.h"
#include "halley/python/eval_model.h"
#include "halley/quant/methods/quantize_checkpoint.h"

namespace halley::python {
namespace {

template <typename T, typename... Shape>
using Array = nb::ndarray<nb::array_api, T, nb::c_contig, nb::device::cpu, Shape...>;

/// An array that takes the memory of `values`.
template <typename T, typename... Shape>
Array<T, Shape...> array_of(std::vector<T> values, std::initializer_list<size_t> shape) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const nb::capsule owner(
      owned.release(), [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  return Array<T, Shape...>(data, shape, owner);
}

template <typename T>
std::vector<int32_t> copy_ids(const nb::ndarray<nb::ro>& array) {
  std::vector<int32_t> ids(array.shape(0));
  for (size_t i = 0; i < ids.size(); ++i) {
    const T id = static_cast<const T*>(array.data())[static_cast<int64_t>(i) * array.stride(0)];
    if (static_cast<int64_t>(id) != static_cast<int32_t>(id)) {
      throw InputError(str("token ids: expected integers of 32 bits, got ", id, " at ", i, "."));
    }
    ids[i] = static_cast<int32_t>(id);
  }
  return ids;
}

/// Copies an array that another library owns.
std::vector<int32_t> token_ids(const nb::ndarray<nb::ro>& array) {
  const bool is_on_host = array.device_type() == nb::device::cpu::value;
  if (is_on_host && array.ndim() == 1 && array.dtype() == nb::dtype<int32_t>()) {
    return copy_ids<int32_t>(array);
  }
  if (is_on_host && array.ndim() == 1 && array.dtype() == nb::dtype<int64_t>()) {
    return copy_ids<int64_t>(array);
  }
  throw InputError(
      str("token ids: expected an array [T] of int32 or int64 on the CPU, got ", array.ndim(),
          " dimensions, type code ", static_cast<int>(array.dtype().code), " of ",
          static_cast<int>(array.dtype().bits), " bits, DLPack device ", array.device_type(), "."));
}

/// The report as JSON.
std::string quantize(const QuantizeOptions& options, int threads,
                     const std::function<void(double share, const std::string& doing)>& show) {
  check_range("threads", threads, 0, kThreadsMax);
  check_range("num_samples", options.num_samples, 1, int64_t{1} << 20);
  check_range("sample_length", options.sample_length, 1, int64_t{1} << 20);
  ThreadPool pool(num_threads_of(threads));
  ExecContext context{pool};
  return to_json(quantize_checkpoint(context, options,
                                     [&](const QuantizeProgress& progress) {
                                       show(progress.share_done, progress.doing);
                                     }))
      .dump();
}

void bind_quantize(nb::module_& module) {
  nb::class_<RecipeChanges>(module, "RecipeChanges")
      .def_rw("bits", &RecipeChanges::bits)
      .def_rw("group_size", &RecipeChanges::group_size)
      .def_rw("symmetric", &RecipeChanges::is_symmetric)
      .def_rw("desc_act", &RecipeChanges::has_act_order)
      .def_rw("static_groups", &RecipeChanges::has_static_groups)
      .def_rw("static_activations", &RecipeChanges::is_activation_static)
      .def_rw("per_tensor", &RecipeChanges::is_per_tensor)
      .def_rw("damp", &RecipeChanges::damp)
      .def_rw("alpha", &RecipeChanges::alpha)
      .def_rw("s8_share", &RecipeChanges::s8_share_max)
      .def_rw("kv_bits", &RecipeChanges::kv_bits)
      .def_rw("without", &RecipeChanges::without);
  nb::class_<QuantizeOptions>(module, "QuantizeOptions")
      .def(nb::init<>())
      .def_rw("model", &QuantizeOptions::model)
      .def_rw("method", &QuantizeOptions::method)
      .def_rw("out", &QuantizeOptions::out)
      .def_rw("calibrate", &QuantizeOptions::text)
      .def_rw("changes", &QuantizeOptions::changes)
      .def_rw("overrides", &QuantizeOptions::overrides)
      .def_rw("num_samples", &QuantizeOptions::num_samples)
      .def_rw("sample_length", &QuantizeOptions::sample_length);
  module.def("quantize", &quantize, nb::arg("options"), nb::arg("threads"), nb::arg("on_progress"),
             WithoutGil());
}

}  // namespace

void bind_evaluation(nb::module_& module) {
  bind_quantize(module);
  module.def("token_ids", &token_ids, nb::arg("array"),
             nb::sig("def token_ids(array: object) -> list[int]"));
  module.def(
      "token_array",
      [](const std::vector<int32_t>& ids) {
        return array_of<int32_t, nb::ndim<1>>(ids, {ids.size()});
      },
      nb::arg("token_ids"),
      nb::sig("def token_array(token_ids: collections.abc.Sequence[int]) -> object"));
  nb::class_<WindowOptions>(module, "WindowOptions")
      .def(
          "__init__",
          [](WindowOptions* self, int64_t window, int64_t num_windows) {
            new (self) WindowOptions{window, num_windows};
          },
          nb::arg("window"), nb::arg("num_windows"));
  nb::class_<EvalModel>(module, "EvalModel")
      .def(nb::init<const SessionOptions&>(), nb::arg("options"), WithoutGil())
      .def("perplexity", &EvalModel::perplexity, nb::arg("text"), nb::arg("windows"),
           nb::arg("logits_path"), nb::arg("on_progress"), WithoutGil())
      .def("compare", &EvalModel::compare, nb::arg("reference"), nb::arg("reference_kv_dtype"),
           nb::arg("text"), nb::arg("windows"), nb::arg("on_progress"), WithoutGil())
      .def("task", &EvalModel::task, nb::arg("path"), nb::arg("on_progress"), WithoutGil())
      .def(
          "logits",
          [](EvalModel& model, const std::vector<int32_t>& ids) {
            std::vector<float> logits;
            {
              const nb::gil_scoped_release without_gil;
              logits = model.logits(ids);
            }
            const size_t vocab_size = logits.size() / ids.size();
            return array_of<float, nb::ndim<2>>(std::move(logits), {ids.size(), vocab_size});
          },
          nb::arg("token_ids"),
          // The stubs need no NumPy.
          nb::sig("def logits(self, token_ids: collections.abc.Sequence[int]) -> object"));
}

}  // namespace halley::python
