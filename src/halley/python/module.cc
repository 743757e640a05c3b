// The native part of the Python package.
#include "halley/base/error.h"
#include "halley/python/bindings.h"
#include "halley/server/openai/api_error.h"

namespace halley::python {
namespace {

void bind_exceptions(nb::module_& module) {
  const nb::exception<Error> error(module, "Error");
  // Code that catches vLLM's errors of requests catches ours.
  const nb::exception<InputError> input(module, "InputError",
                                        nb::make_tuple(error, nb::handle(PyExc_ValueError)));
  const nb::exception<CheckpointError> checkpoint(module, "CheckpointError", error);
  const nb::exception<UnsupportedError> unsupported(module, "UnsupportedError", error);
  const nb::exception<DeviceError> device(module, "DeviceError", error);
  // An error of the API is one of the request, unless the server would ask to try again.
  nb::register_exception_translator(
      [](const std::exception_ptr& thrown, void* input_error) {
        try {
          std::rethrow_exception(thrown);
        } catch (const ApiError& api_error) {
          if (api_error.details().status != 400) throw;
          PyErr_SetString(static_cast<PyObject*>(input_error), api_error.what());
        }
      },
      input.ptr());
}

}  // namespace

NB_MODULE(_native, module) {
  // An LLM that lives until the interpreter ends is no leak.
  nb::set_leak_warnings(false);
  module.attr("version") = HALLEY_VERSION;
  bind_exceptions(module);
  bind_session(module);
  bind_evaluation(module);
  bind_torch(module);
}

}  // namespace halley::python
