// The tables of everything that templates can call by name. One file each defines them.
#pragma once

#include <span>

#include "halley/checkpoint/chat_template/callable.h"

namespace halley::jinja {

std::span<const Builtin> string_methods();
std::span<const Builtin> sequence_methods();  // of lists and tuples
std::span<const Builtin> dict_methods();
std::span<const Builtin> loop_methods();
std::span<const Builtin> cycler_methods();
std::span<const Builtin> functions();
std::span<const Builtin> text_filters();
std::span<const Builtin> number_filters();
std::span<const Builtin> sequence_filters();
std::span<const Builtin> selection_filters();
std::span<const Builtin> tests();

}  // namespace halley::jinja
