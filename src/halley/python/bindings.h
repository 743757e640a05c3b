// The parts of the native module, each of which adds its classes and functions.
#pragma once

#include <nanobind/nanobind.h>

namespace halley::python {

namespace nb = nanobind;
using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

void bind_session(nb::module_& module);
void bind_evaluation(nb::module_& module);  // needs bind_session()
void bind_torch(nb::module_& module);

}  // namespace halley::python
